"""What a module keeps between calls: refused where results depend on it, followed where forward sets it first."""

from __future__ import annotations

import pytest

from mtmc.errors import TaskError
from mtmc.rewrite.capture import capture
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source

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
    graph = capture(task)
    assert [op.target for op in graph.ops] == ["aten.add.Tensor", "aten.tanh.default", "aten.mul.Tensor"]
    assert "= x + start\n" in print_plan(task, graph, root_plan(graph)).source


@pytest.mark.parametrize("forward", ["pass", "self.hidden.add_(start)"])
def test_a_tensor_attribute_that_is_read_before_it_is_set_is_refused(forward: str) -> None:
    with pytest.raises(
        TaskError, match="task 'cell': forward reads what the plain tensor attribute 'hidden' held before"
    ):
        capture(cell(forward))
