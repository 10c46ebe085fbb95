"""Conditions on sizes that a module's Python decides by: assertions of the printed file."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mtmc.evaluate.audit.audit import audit
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.source import root_source
from mtmc.task import capture_module
from tests.task.printed import printed


class Branch(nn.Module):
    def __init__(self, condition: str) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        (b, t, d), n = x.shape, y.shape[0]
        return x.sum((1, 2)) * 3 if eval(self.condition, {"b": b, "t": t, "d": d, "n": n, "x": x}) else x.sum((1, 2))


@pytest.mark.parametrize(
    ("condition", "written", "breaks"),
    [
        ("t > 20", "x.shape[1] > 20", {"x": (4, 20, 10)}),
        ("t <= 20", "x.shape[1] > 20", {"x": (4, 19, 10)}),
        ("d % 2 == 0", "(x.shape[2] % 2) == 0", {"x": (4, 24, 9)}),
        ("t != 2 * b", "x.shape[1] != (2*x.shape[0])", {"x": (12, 24, 10)}),
        ("n > t", "y.shape[0] > x.shape[1]", {"y": (24,)}),
        ("x.numel() >= 900", "x.shape[2]*x.shape[1]*x.shape[0] >= 900", {"x": (2, 24, 10)}),
    ],
)
def test_a_branch_on_a_size_is_an_assertion_that_admits_and_graphs_leave_out(
    condition: str, written: str, breaks: dict[str, tuple[int, ...]]
) -> None:
    shapes = {"x": (4, 24, 10), "y": (40,)}
    task = capture_module(Branch(condition), tuple(map(torch.randn, shapes.values()))).task
    assert [line.strip() for line in task.source.splitlines() if "assert" in line] == [f"assert {written}"]
    assert audit(root_source(task)) is None
    graph = export_graph(task)
    assert len(graph.variants) == 4 and len(graph.ops) <= 2
    model, _ = printed(task)
    model(*map(torch.randn, shapes.values()))
    with pytest.raises(AssertionError):
        model(*map(torch.randn, {**shapes, **breaks}.values()))


def test_what_operators_ask_of_sizes_is_no_assertion() -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x.view(x.shape[0], x.shape[1] // 2, 2, -1).transpose(1, 2) @ y).softmax(-1)

    task = capture_module(Plain(), (torch.randn(4, 24, 10), torch.randn(10, 6))).task
    assert "assert" not in task.source


def test_a_size_that_has_to_be_one_number_is_written_as_that_number() -> None:
    task = capture_module(Branch("t == 24"), (torch.randn(4, 24, 10), torch.randn(40))).task
    assert "x = torch.randn((size0, 24, size1))" in task.source and "assert" not in task.source


class Refuses(nn.Module):
    """What torch.export cannot trace with this dimension open, and a flag that depends on another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.sum(-1, keepdim=x.shape[2] > 1)  # a flag that torch.export takes of a closed size alone
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1) * scale


def test_one_dimension_that_does_not_export_open_leaves_the_others_open() -> None:
    task = capture_module(Refuses(), torch.randn(4, 24, 10)).task
    assert "x = torch.randn((size0, size1, 10))" in task.source


class Patches(nn.Module):
    """Images of one size alone have a place in its table for each patch, which an export does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, 32, 32)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 50, 8))
        self.mix = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.cut(x).flatten(2).transpose(1, 2)
        return self.mix(torch.cat([self.first.expand(x.shape[0], 1, 8), patches], 1) + self.places).mean(1)


def test_sizes_that_cannot_all_go_down_together_go_down_alone() -> None:
    captured = capture_module(Patches().eval(), torch.randn(64, 3, 224, 224))
    small = dict(captured.task.small.constants)
    assert small == {"size0": 2}
    assert all(dict(each.constants)["size0"] != 64 for each in captured.task.held_out)
