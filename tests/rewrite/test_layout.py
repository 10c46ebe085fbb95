"""Channels last around the library's convolutions: where it is legal, what is turned; the values stay the same."""

from __future__ import annotations

import pytest

from mtmc.evaluate.hardware import hardware
from mtmc.optimizations import KINDS, legal_actions
from mtmc.optimizations.version import Version
from mtmc.rewrite.capture import capture
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.rewrite.source import print_plan, root_regions
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret

TEMPLATE = """
import torch
from torch import nn

batch = 8
size = 32
VARIANTS = {{"small": {{"batch": 2, "size": 9}}, "odd1": {{"batch": 1, "size": 7}}}}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.{first}
        self.scale = nn.Parameter(torch.randn(32, *[1] * {rank}))
        self.row = nn.Parameter(torch.randn(32))

    def forward(self, x):
        y = self.first(x)
        {work}


def get_inputs():
    return [torch.randn(batch, 16, *[size] * {rank})]


def get_init_inputs():
    return [16]
"""
PLANE = "Conv2d(channels, 32, 3, padding=1)"


def source(work: str, first: str = PLANE, rank: int = 2) -> str:
    return TEMPLATE.format(first=first, work=work, rank=rank)


CASES = {
    "chain": (source("return torch.tanh(y * self.scale) + y"), ["fuse mul and tanh", "fuse mul_tanh and add,", "keep"]),
    "gate_of_a_row": (
        source("return y * torch.sigmoid(y.mean((2, 3), keepdim=True)) + self.row[:, None, None]"),
        ["fuse mul and add,", "keep"],
    ),
    "two_convolutions": (
        source("return torch.conv2d(torch.relu(y), self.first.weight.transpose(0, 1), padding=1)"),
        ["lower relu", "keep"],
    ),
    "a_reduction_behind": (source("return torch.exp(y).sum((2, 3))"), ["lower exp", "lower sum", "keep"]),
    "a_view_behind": (source("return torch.relu(y).flatten(1).cumsum(1) * 2"), ["lower relu", "lower mul", "keep"]),
    "three_dimensions": (
        source("return torch.relu(y) * self.scale", "Conv3d(channels, 32, 3)", 3),
        ["fuse relu and mul", "keep"],
    ),
    "transposed": (
        source("return torch.relu(y) * self.scale", "ConvTranspose2d(channels, 32, 3, stride=2)"),
        ["fuse relu and mul", "keep"],
    ),
}


def test_values_stay_the_same() -> None:
    found = interpret([{"name": name, "source": text, "ways": [way]} for name, (text, way) in CASES.items()])
    assert found == dict.fromkeys(CASES)


def version(task: Task, plan: Plan | None = None, gpu: str = "H100") -> Version:
    graph = capture(task)
    plan = plan or root_plan(graph)
    at_root = plan == root_plan(graph)
    regions = root_regions(task, graph, plan) if at_root else dict(print_plan(task, graph, plan).regions)
    return Version(task, graph, plan, regions, hardware(gpu))


@pytest.mark.parametrize(
    ("first", "gpu", "legal"),
    [
        (PLANE, "H100", True),
        (PLANE, "MI300X", False),
        ("Conv2d(channels, 32, 3, padding=1, groups=16)", "H100", False),
        ("Conv2d(channels, 8, 3, padding=1)", "H100", False),
        ("Identity()", "H100", False),
    ],
)
def test_where_it_is_legal(first: str, gpu: str, legal: bool) -> None:
    start = version(task_from_source(source("return torch.relu(y)", first), "layout"), gpu=gpu)
    assert ("layout" in {action.kind for action in legal_actions(start)}) is legal


def turned(text: str, *before: str) -> str:
    """The source after some actions (by their sentences' beginnings) and the layout."""
    task = task_from_source(text, "layout")
    now = version(task)
    for beginning in (*before, "keep tensors channels last"):
        action = next(action for action in legal_actions(now) if action.sentence.startswith(beginning))
        plan = KINDS[action.kind].rewrite(now, action)
        assert plan is not None
        now = version(task, plan)
    assert "layout" not in {action.kind for action in legal_actions(now)}
    return print_plan(task, now.graph, now.plan).source


def test_elementwise_kernels_stay_channels_last_and_others_get_a_copy() -> None:
    kept = turned(source("return torch.tanh(y * self.scale)"), "fuse mul and tanh")
    assert "x.contiguous(memory_format=torch.channels_last)" in kept and ".contiguous()" not in kept
    assert "scale_ptr + offs % size_1" in kept  # one number a channel, and channels are innermost
    first = turned(source("return torch.exp(y).sum((2, 3))"), "lower sum")
    assert "launch_sum_1(exp.contiguous())" in first
    crossing = turned(source("return torch.exp(y) * y.mean(2, keepdim=True)"), "fuse exp and mul")
    assert "launch_exp_mul(conv2d.contiguous(), mean.contiguous())" in crossing  # means lie channels first
