"""What is read behind a reduction is loaded before it, where a thread has registers for it."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import after, version

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, columns = 4096, {columns}
VARIANTS = {{
    "small": {{"rows": 5, "columns": 320}},
    "odd1": {{"rows": 7, "columns": 33}},
    "odd2": {{"rows": 3, "columns": 129}},
    "odd3": {{"rows": 1, "columns": 1}},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns, dtype=torch.{dtype}))

    def forward(self, x, y):
        return F.layer_norm(x, (columns,)) * self.weight + torch.softmax(x, -1) * y


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.{dtype}), torch.randn(rows, columns, dtype=torch.{dtype})]


def get_init_inputs():
    return []
"""


def one_kernel(columns: int, dtype: str, warps: int) -> str:
    """The source where all is one kernel of so many warps."""
    task = task_from_source(REFERENCE.format(columns=columns, dtype=dtype), "ahead")
    at = version(task, root_plan(export_graph(task)))
    at = after(at, "fuse the")[1]
    [stage] = at.kernels()
    return print_plan(task, at.graph, at.plan.with_stage(stage, stage.scheduled({"num_warps": warps}))).source


@pytest.mark.parametrize(
    ("columns", "dtype", "warps", "ahead"),
    [
        (4096, "float32", 8, True),  # 16 numbers of each in a thread: 48
        (4096, "float32", 4, False),  # 96
        (4096, "bfloat16", 8, False),
        (1024, "float32", 2, True),
    ],
)
def test_as_many_loads_go_ahead_as_registers_hold(columns: int, dtype: str, warps: int, ahead: bool) -> None:
    text = one_kernel(columns, dtype, warps)
    first = min(text.index("tl.sum("), text.index("tl.max("))
    assert text.count("tl.load(") == 3
    assert all((text.index(f"    {name} = tl.load(") < first) == ahead for name in ("weight", "y"))


def test_a_kernel_that_loads_ahead_is_right() -> None:
    way = {
        "name": "ahead",
        "source": REFERENCE.format(columns=4096, dtype="float32"),
        "ways": [["fuse"]],
        "whole": True,
    }
    assert interpret([way]) == {"ahead": None}
