"""What a module keeps between calls: refused where results depend on it, followed where forward sets it first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mtmc.errors import TaskError
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, Variant, task_from_source
from tests.rewrite.references import reference

CELL = """
import torch
from torch import nn

batch, width = 16, 64
VARIANTS = {{"small": {{"batch": 3, "width": 5}}}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = torch.zeros(batch, width)

    def forward(self, x, start):
        {forward}
        self.hidden = torch.tanh(x + self.hidden)
        return self.hidden * 2


def get_inputs():
    return [torch.randn(batch, width), torch.randn(batch, width)]


def get_init_inputs():
    return [width]
"""


def cell(forward: str) -> Task:
    return task_from_source(CELL.format(forward=forward), "cell")


def test_a_tensor_attribute_that_forward_sets_first_is_no_part_of_the_results() -> None:
    task = cell("self.hidden.copy_(start)")
    graph = export_graph(task)
    assert [op.target for op in graph.ops] == ["aten.add.Tensor", "aten.tanh.default", "aten.mul.Tensor"]
    assert "= x + start\n" in print_plan(task, graph, root_plan(graph)).source


@pytest.mark.parametrize("forward", ["pass", "self.hidden.add_(start)"])
def test_a_tensor_attribute_that_is_read_before_it_is_set_is_refused(forward: str) -> None:
    with pytest.raises(
        TaskError, match="task 'cell': forward reads what the plain tensor attribute 'hidden' held before"
    ):
        export_graph(cell(forward))


SHUFFLE = """
import torch
from torch import nn

batch, groups, each, height, width = 8, 4, 6, 16, 16
VARIANTS = {
    "small": {"batch": 2, "each": 1, "height": 3, "width": 5},
    "odd1": {"batch": 3, "each": 5, "height": 9, "width": 7},
}


class Model(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        batch, channels, height, width = x.shape
        x = x.view(batch, self.groups, channels // self.groups, height, width).transpose(1, 2)
        FORWARD


def get_inputs():
    return [torch.randn(batch, groups * each, height, width)]


def get_init_inputs():
    return [groups]
"""


@pytest.mark.parametrize(
    "forward",
    [
        "return x.contiguous().view(batch, channels, height, width).add(1).relu_()",
        "return x.reshape(batch, channels, height, width).add(1).relu_()",
        "return torch.relu(x.contiguous().view(batch, channels, height, width))",
    ],
)
def test_copies_that_some_shapes_do_not_need_leave_no_variant_out(forward: str) -> None:
    """With one channel in a group a transpose is contiguous, and torch makes no copy."""
    task = task_from_source(SHUFFLE.replace("FORWARD", forward), "shuffle")
    graph = export_graph(task)
    assert graph.variants == ("full", "small", "odd1")
    made: dict[str, Any] = {}
    exec(print_plan(task, graph, root_plan(graph)).source, made)
    exec(task.source, reference := {})
    for shape in ((2, 4, 3, 5), (3, 20, 6, 7), (1, 8, 1, 2)):
        x = torch.randn(shape)
        assert torch.equal(made["ModelNew"](4)(x.clone()), reference["Model"](4)(x.clone()))


def test_a_variant_that_takes_another_path_leaves_out_no_other_one() -> None:
    branch = "return x.exp() if batch == 2 else x.tanh() + height"
    task = task_from_source(SHUFFLE.replace("FORWARD", branch), "branch")
    graph = export_graph(task)
    assert graph.variants == ("full", "odd1")
    assert "tanh + tanh.shape[3]" in print_plan(task, graph, root_plan(graph)).source


PLAIN = CELL.replace(
    "self.hidden = torch.tanh(x + self.hidden)\n        return self.hidden * 2", "return x @ start.t()"
)


@pytest.mark.parametrize(
    ("inside", "mend"),
    [
        (
            "with torch.autocast('cpu', dtype=torch.bfloat16):\n            x = x @ x.t() @ x\n        x = x.float()",
            "cast tensors with .to",
        ),
        ("x = x + x[x > 0].sum() + torch.masked_select(start, start > 0).max()", "choose with torch.where"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused_with_the_mend(inside: str, mend: str) -> None:
    with pytest.raises(TaskError, match=mend):
        export_graph(task_from_source(PLAIN.format(forward=inside), "cast"))


def test_nan_is_a_constant_like_another() -> None:
    task = task_from_source(PLAIN.format(forward="x = torch.where(x < -3, torch.tensor(float('nan')), x)"), "nan")
    graph = export_graph(task)
    assert len(graph.variants) > 1
    assert 'torch.full((), float("nan"), ' in print_plan(task, graph, root_plan(graph)).source


def test_a_set_of_shapes_that_is_the_full_one_gives_way_to_one_that_says_more() -> None:
    text = (
        "import torch\nn = 8\nclass Model(torch.nn.Module):\n    def forward(self, x): return x.relu()\n"
        "def get_inputs(): return [torch.rand(n, 4)]\ndef get_init_inputs(): return []\n"
    )
    odd = tuple(Variant(f"odd{n}", (("n", n),)) for n in (3, 5, 7))
    task = Task("same", text, Variant("full"), Variant("small"), odd)
    assert export_graph(task).variants == ("full", "odd3", "odd5", "odd7")
    assert export_graph(replace(task, held_out=odd[:2])).variants == ("full", "odd3", "odd5", "small")


def test_a_variant_with_another_choice_among_its_arguments_takes_another_path() -> None:
    source = reference("torch.topk(x, 1, 1, largest=x.shape[0] > 6)[0]")
    graph = export_graph(task_from_source(source, "largest_or_smallest"))
    assert graph.variants == ("full", "odd1") and graph.ops[0].args[3:4] in ((), (True,))
