"""Kernels over rows that read a convolution's result channels last, as it lies: no copy before, and the same numbers."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

SOURCE = """
import torch
from torch import nn

size, batch = 16, 2
VARIANTS = {{"small": {{"size": 5, "batch": 1}}, "odd1": {{"size": 7, "batch": 3}}, "odd2": {{"size": 1, "batch": 2}}}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv{rank}d(24, 24, 3, padding=1)
        self.norm, self.groups = nn.LayerNorm(24), nn.GroupNorm(4, 24)

    def forward(self, x):
        {work}


def get_inputs():
    return [torch.randn(batch, 24, {sizes})]


def get_init_inputs():
    return []
"""
READ = {
    "tokens": "return self.norm(self.conv(x).flatten(2).transpose(1, 2))",
    "added": "y = (x + self.conv(x)).flatten(2).transpose(1, 2); return y, self.norm(y)",
    "permuted": "return self.norm(self.conv(x).permute(0, 2, 3, 1))",
    "over_channels": "return torch.softmax(self.conv(x), 1)",
    "through_a_map": "return self.norm(torch.relu(self.conv(x)).flatten(2).transpose(1, 2)) * 2",
    "twice": "y = self.conv(x).flatten(2).transpose(1, 2); return self.norm(y) + y.softmax(-1)",
}
COPIED = {"of_groups": "return self.groups(self.conv(x))"}
DEEP = {"deep": "return self.norm(self.conv(x).flatten(2).transpose(1, 2))"}


def text(name: str) -> str:
    rank, sizes = (3, "2, size, size + 2") if name in DEEP else (2, "size, size + 2")
    return SOURCE.format(work={**READ, **COPIED, **DEEP}[name], rank=rank, sizes=sizes)


@cache
def task_of(name: str) -> Task:
    return task_from_source(text(name), name)


def printed(name: str, **settings: int | str) -> str:
    """The library's convolution channels last, and all behind it as one kernel over rows."""
    task = task_of(name)
    graph, now = export_graph(task), version(task)
    first, *rest = now.plan.stages
    kernel = now.as_kernel(tuple(op for stage in rest for op in stage.ops), {})
    assert kernel is not None and kernel.template == "rowwise"
    changed = kernel.scheduled(settings) if settings else kernel
    return print_plan(task, graph, Plan((first.scheduled({"layout": "channels_last"}), changed))).source


@pytest.mark.parametrize("name", [*READ, *DEEP])
def test_rows_in_registers_read_a_result_as_it_lies(name: str) -> None:
    source = printed(name, passes="registers", block_cols=0)
    assert "conv2d.contiguous()" not in source and "conv3d.contiguous()" not in source
    assert "_stride_1" in source


def test_rows_that_are_gone_over_again_and_again_get_a_copy() -> None:
    assert "conv2d.contiguous()" in printed("of_groups", passes="loop", block_cols=512)


def test_the_numbers_are_those_of_torch() -> None:
    names = [*READ, *COPIED, *DEEP]
    cases = [{"name": name, "source": text(name), "candidate": printed(name)} for name in names]
    assert interpret(cases) == dict.fromkeys(names)
