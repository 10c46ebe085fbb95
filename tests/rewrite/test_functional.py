"""Exports that are written anew without changes in place are those that torch makes by tracing them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mtmc.rewrite import functional
from mtmc.rewrite.effects import SAME_VALUES
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.functional import _KEPT_WHOLE, made_functional
from mtmc.rewrite.symbolic import read_symbolic
from mtmc.task import load_task


class Normed(nn.Module):
    """A norm that keeps statistics, and what comes behind it."""

    def __init__(self, behind: Callable[..., Any], width: int = 8, rank: int = 2) -> None:
        super().__init__()
        norms = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
        self.norm = norms[rank](width)
        self.behind = behind

    def forward(self, x: torch.Tensor) -> Any:
        return self.behind(self.norm(x))


def _exported(module: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module, inputs, strict=False)


def _described(program: torch.export.ExportedProgram) -> list[Any]:
    """All that the rewriter reads of an export."""

    def form(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return tuple(value.shape), value.dtype, value.stride()
        return [form(each) for each in value] if isinstance(value, (list, tuple)) else value

    nodes = [
        (
            *(node.op, node.name, str(node.target), str(node.args), str(node.kwargs)),
            *(form(node.meta.get("val")), node.meta.get("stack_trace")),
        )
        for node in program.graph.nodes
    ]
    return [*nodes, str(program.graph_signature), str(program.call_spec.out_spec)]


def _is_as_torch_has_it(module: nn.Module, *inputs: torch.Tensor) -> None:
    program = _exported(module, *inputs)
    written = made_functional(program)
    assert written is not None
    assert _described(written) == _described(program.run_decompositions({}))


PLACES = torch.randn(2, 8, 6, 6)


@pytest.mark.parametrize(
    "behind",
    [
        lambda x: F.relu(x, inplace=True),
        lambda x: F.hardtanh(F.silu(x, inplace=True), 0.0, 6.0, inplace=True),
        lambda x: x.mul_(2.0).add_(1),
        lambda x: (x + 1).add_(x).relu_() * x,
        lambda x: torch.flatten(F.adaptive_avg_pool2d(x.relu_(), 1), 1),
        lambda x: x.transpose(1, 2).contiguous().view(2, 6, 48),
        lambda x: (x.contiguous().reshape(2, -1), x.transpose(1, 2).reshape(2, -1)),
        lambda x: {"max": x.max(1)[0], "parts": torch.split(x, 3, 1)[1]},
        lambda x: torch.cat([x, x.sigmoid()], 1).sum((2, 3)),
        lambda x: F.pad(x, (1, 1)).to(torch.float32),
    ],
)
def test_what_comes_behind_a_norm(behind: Callable[..., Any]) -> None:
    module = Normed(behind)
    program = _exported(module, PLACES)
    written = made_functional(program)
    if written is None:  # a cast: torch says what it becomes
        assert any("aten.to" in str(node.target) for node in program.graph.nodes)
        return
    assert _described(written) == _described(program.run_decompositions({}))


WHOLE: dict[str, tuple[int, Callable[..., Any]]] = {
    "conv1d": (1, lambda x: F.conv1d(x, torch.ones_like(x[:, :, :3]))),
    "conv2d": (2, lambda x: F.conv2d(x, torch.ones_like(x[:, :, :3, :3]))),
    "conv3d": (3, lambda x: F.conv3d(x, torch.ones_like(x[:, :, :3, :3, :3]))),
    "conv_transpose1d": (1, lambda x: F.conv_transpose1d(x, x.new_ones(8, 4, 2))),
    "conv_transpose2d": (2, lambda x: F.conv_transpose2d(x, x.new_ones(8, 4, 2, 2))),
    "conv_transpose3d": (3, lambda x: F.conv_transpose3d(x, x.new_ones(8, 4, 2, 2, 2))),
    "max_pool1d": (1, lambda x: F.max_pool1d(x, 2)),
    "max_pool2d": (2, lambda x: F.max_pool2d(x, 2)),
    "max_pool3d": (3, lambda x: F.max_pool3d(x, 2)),
    "adaptive_avg_pool1d": (1, lambda x: F.adaptive_avg_pool1d(x, 2)),
    "adaptive_avg_pool2d": (2, lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive_avg_pool3d": (3, lambda x: F.adaptive_avg_pool3d(x, 2)),
    "avg_pool1d": (1, lambda x: F.avg_pool1d(x, 2)),
    "linear": (2, lambda x: F.linear(x, x.new_ones(3, 6))),
    "layer_norm": (2, lambda x: F.layer_norm(x, (6,))),
    "group_norm": (2, lambda x: F.group_norm(x, 2)),
    "matmul": (2, lambda x: torch.matmul(x, x)),
    "softmax": (2, lambda x: torch.softmax(x, -1)),
    "log_softmax": (2, lambda x: torch.log_softmax(x, 1)),
}


@pytest.mark.parametrize("name", sorted({each.split(".")[1] for each in _KEPT_WHOLE}))
def test_ops_that_torch_leaves_whole(name: str) -> None:
    rank, behind = WHOLE[name]
    program = _exported(Normed(behind, rank=rank), torch.randn(2, 8, *(6,) * rank))
    assert any(str(node.target) in _KEPT_WHOLE and f".{name}." in str(node.target) for node in program.graph.nodes)
    _is_as_torch_has_it(Normed(behind, rank=rank), torch.randn(2, 8, *(6,) * rank))


class Twice(nn.Module):
    """One norm that is called twice, so that its statistics change twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        return self.norm(F.relu_(self.norm(x))) * self.calls


def test_a_buffer_that_changes_twice_and_is_read() -> None:
    _is_as_torch_has_it(Twice(), PLACES)


class Overwriting(nn.Module):
    def __init__(self, change: Callable[..., Any]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("kept", torch.zeros(2, 8, 6, 6))
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self, x, self.norm(x))


@pytest.mark.parametrize(
    "change",
    [
        lambda self, x, y: (y[:, 0].relu_(), y),  # a part of what is returned
        lambda self, x, y: (y.view(2, -1), y.relu_())[0],  # another form of it, made before
        lambda self, x, y: y + x.add_(1),  # an input
        lambda self, x, y: y + self.kept.copy_(y),  # filled
        lambda self, x, y: (y, self.kept.add_(1)),  # handed out
        lambda self, x, y: y.add_(y.transpose(2, 3)),  # lies in another way
        lambda self, x, y: y.uniform_(),  # drawn
        lambda self, x, y: y.unsqueeze_(0).sum(),  # another form in place
        lambda self, x, y: F.dropout(y, 0.5),
        lambda self, x, y: F.instance_norm(y),
        lambda self, x, y: y.detach().relu(),
        lambda self, x, y: (lambda d: (d[:, 1:3].zero_(), d + x))(F.dropout(x, 0.5, False)),
        lambda self, x, y: (lambda v: (y.relu_(), v))(F.dropout(y, 0.5, False).view(-1)),
        lambda self, x, y: torch.topk(y, 2)[0].relu_(),
    ],
)
def test_what_is_not_plain_is_left_to_torch(change: Callable[..., Any]) -> None:
    assert made_functional(_exported(Overwriting(change), PLACES)) is None


def test_norms_of_other_types_are_left_to_torch() -> None:
    assert made_functional(_exported(Normed(F.relu).half(), PLACES.half())) is None
    assert made_functional(_exported(Normed(F.relu), PLACES.bfloat16())) is None
    assert "aten.detach.default" in SAME_VALUES


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, relu: torch.Tensor, getitem_3: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(relu)) + getitem_3


def test_inputs_with_the_names_of_ops_are_left_to_torch() -> None:
    assert made_functional(_exported(Named(), PLACES, PLACES)) is None


NETWORK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
batch, side = 4, 16

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 + 4 * at, 4, 3, padding=1) for at in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 4 * at) for at in range(3))
        self.head = nn.Linear(15, 5)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = torch.cat([x, conv(F.relu(norm(x), inplace=True))], 1)
        x = F.avg_pool2d(x, 2)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))

def get_inputs():
    return [torch.randn(batch, 3, side, side)]

def get_init_inputs():
    return []
"""


def test_sizes_with_open_dimensions_are_those_that_torch_finds() -> None:
    task = load_task(NETWORK)
    graph = export_graph(task)
    quick, whole = read_symbolic(task, graph, conditions=False), read_symbolic(task, graph)
    assert quick is not None and whole is not None
    assert str(quick.sizes) == str(whole.sizes) and str(quick.numbers) == str(whole.numbers)
    assert set(quick.conditions) <= set(whole.conditions)


def test_a_torch_whose_exports_are_built_otherwise_makes_them_functional_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(writer: functional._Writer) -> torch.export.ExportedProgram:
        raise TypeError("ExportedProgram() got an unexpected keyword argument")

    monkeypatch.setattr(functional._Writer, "program", refused)
    assert made_functional(_exported(Normed(F.relu), PLACES)) is None
    assert "made functional by torch" in caplog.text
