"""Channels last around the library's convolutions: where it is legal, what is permuted; the values stay the same."""

from __future__ import annotations

import pytest

from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, child_of, version

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
    "branches": (
        source(
            "return torch.cat([y, torch.tanh(self.first(torch.relu(x))), self.first(torch.max_pool2d(x, 3, 1, 1))], 1)"
        ),
        ["lower max_pool2d", "lower relu", "lower tanh", "keep"],
    ),
    "two_convolutions": (
        source("return torch.conv2d(torch.relu(y), self.first.weight.transpose(0, 1), padding=1)"),
        ["lower relu", "keep"],
    ),
    "a_reduction_behind": (source("return torch.exp(y).sum((2, 3))"), ["lower exp", "lower sum", "keep"]),
    "the_least_channel": (source("return torch.tanh(torch.min(y, 1, keepdim=True)[0])"), ["fuse min_1 and", "keep"]),
    "a_softmax_of_channels": (
        source("return torch.softmax(torch.relu(y), 1).sum(1)", "Conv3d(channels, 32, 3)", 3),
        ["fuse the", "keep"],
    ),
    "statistics_of_a_batch": (
        source("return torch.nn.functional.batch_norm(y, None, None, self.row, self.row, True) * 2"),
        ["fuse batch_norm and", "keep"],
    ),
    "means_of_a_channel": (source("return torch.relu(y).mean((2, 3)).flatten(1) * self.row"), ["fuse the", "keep"]),
    "a_bias_behind": (
        source("return torch.tanh(y) * self.scale", "ConvTranspose2d(channels, 32, 3, stride=2)"),
        ["keep", "rewrite by algebra: the bias", "fuse the 3"],
    ),
    "a_mask": (source("return y * 2 > 0.5"), ["fuse mul and", "keep"]),
    "a_pool_with_work_around": (
        source("return torch.tanh(torch.nn.functional.max_pool2d(torch.relu(y) * 2, 3, 2, 1) * self.scale)"),
        ["fuse the", "keep"],
    ),
    "means_of_windows_that_reach_over": (
        source("return torch.nn.functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False).sum(1)"),
        ["lower avg_pool2d", "lower sum", "keep"],
    ),
    "a_pool_of_volumes": (
        source(
            "return torch.nn.functional.adaptive_avg_pool3d(y, (2, 3, 1)) * self.scale", "Conv3d(channels, 32, 3)", 3
        ),
        ["fuse adaptive", "keep"],
    ),
    "a_view_behind": (source("return torch.relu(y).flatten(1).cumsum(1) * 2"), ["lower relu", "lower mul", "keep"]),
    "three_dimensions": (
        source("return torch.relu(y) * self.scale", "Conv3d(channels, 32, 3)", 3),
        ["fuse relu and mul", "keep"],
    ),
    "transposed": (
        source("return torch.relu(y) * self.scale", "ConvTranspose2d(channels, 32, 3, stride=2)"),
        ["fuse relu and mul", "keep"],
    ),
    "groups_of_channels": (
        source("return nn.functional.group_norm(y, 8, self.row, self.row)"),
        ["lower group", "keep"],
    ),
    "groups_with_work_around": (
        source(
            "z = nn.functional.group_norm(torch.tanh(y) + x.amax((1, 2, 3), keepdim=True), 4, self.row)\n"
            "        return z * torch.sigmoid(z) + self.row[:, None, None]"
        ),
        ["fuse the 6 calls", "keep"],
    ),
    "one_group": (source("return torch.relu(nn.functional.group_norm(y, 1))"), ["fuse group_norm", "keep"]),
    "groups_of_one": (source("return nn.functional.group_norm(y, 32, None, self.row)"), ["lower group", "keep"]),
    "groups_of_volumes": (
        source("return torch.tanh(nn.functional.group_norm(y, 4, self.row))", PLANE.replace("2d", "3d"), 3),
        ["fuse group_norm", "keep"],
    ),
}
IN_GROUPS = [name for name in CASES if "group" in name]


@pytest.mark.parametrize("name", IN_GROUPS)
def test_norms_of_groups_of_channels_read_them_as_they_lie(name: str) -> None:
    text, way = CASES[name]
    kept = relaid(text, way[0])
    after = kept[kept.index("def forward") :]
    assert "conv2d.contiguous()" not in after and "conv3d.contiguous()" not in after
    assert "before = rows // " in kept and "lead = cols" in kept


@pytest.mark.parametrize(
    "work",
    [
        "return y.unflatten(1, (4, 8)).amax(2)",  # groups that are reduced at each position
        "return y.unflatten(1, (4, 8)).flatten(2).argmax(2)",  # places in another order
        "return nn.functional.group_norm(y, 4) * x.mean((1, 2), keepdim=True)",  # one number a column lies otherwise
    ],
)
def test_other_work_on_groups_of_channels_takes_a_copy_or_the_order_it_knows(work: str) -> None:
    found = interpret([{"name": "other", "source": source(work), "ways": [["lower", "fuse", "keep"]]}])
    assert found == {"other": None}


def test_values_stay_the_same() -> None:
    found = interpret([{"name": name, "source": text, "ways": [way]} for name, (text, way) in CASES.items()])
    assert found == dict.fromkeys(CASES)


@pytest.mark.parametrize(
    ("first", "gpu", "legal"),
    [
        (PLANE, "H100", True),
        (PLANE, "MI300X", False),
        ("Conv2d(channels, 32, 3, padding=1, groups=16)", "H100", False),
        ("Conv2d(channels, 4, 3, padding=1)", "H100", False),
        ("Identity()", "H100", False),
    ],
)
def test_where_it_is_legal(first: str, gpu: str, legal: bool) -> None:
    start = version(task_from_source(source("return torch.relu(y)", first), "layout"), gpu=gpu)
    assert ("layout" in {action.kind for action in actions_on(start)}) is legal


def relaid(text: str, *before: str, last: bool = True) -> str:
    """The source after some actions (by their sentences' beginnings) and the layout (which may also come first)."""
    task = task_from_source(text, "layout")
    now = version(task)
    for beginning in (*before, "keep tensors channels last") if last else ("keep tensors channels last", *before):
        action = next(action for action in actions_on(now) if action.sentence.startswith(beginning))
        plan = child_of(now, action)
        assert plan is not None
        now = version(task, plan)
    assert "layout" not in {action.kind for action in actions_on(now)}
    return print_plan(task, now.graph, now.plan).source


def test_what_is_done_afterwards_stays_channels_last() -> None:
    text = source("return torch.tanh(torch.amin(torch.relu(y), 1))")
    way = ("rewrite by algebra: the bias of conv2d", "fuse the 4 calls")
    assert relaid(text, *way) == relaid(text, *way, last=False)


def test_what_several_read_channels_last_is_turned_once() -> None:
    branches = "[y, torch.conv2d(x, self.first.weight), self.first(torch.max_pool2d(x, 3, 1, 1)), x.sum(1)]"
    apart = relaid(source(f"return {branches}"))
    assert apart.count("x_last = launch_channels_last(x)") == 1 and apart.count("launch_channels_last(max_pool2d)") == 1
    pooled = relaid(source(f"return {branches}"), "lower max_pool2d")
    assert "launch_max_pool2d(x_last)" in pooled and pooled.count("launch_channels_last(") == 2  # with its definition
    assert "torch.sum(x, [1])" in pooled  # whose channels are read as they lie
    alone = relaid(source("return torch.max_pool2d(x, 3, 1, 1), y"), "lower max_pool2d")
    assert "launch_max_pool2d(x)" in alone and "x_last" not in alone  # no convolution reads what it gives


def test_elementwise_kernels_stay_channels_last_and_others_get_a_copy() -> None:
    kept = relaid(source("return torch.tanh(y * self.scale)"), "fuse mul and tanh")
    assert "launch_channels_last(x)," in kept and "conv2d.contiguous()" not in kept
    assert "scale_ptr + offs % size_1" in kept  # one number a channel, and channels are innermost
    rows = relaid(source("return torch.tanh(torch.amin(y, 1))"), "fuse amin and tanh")
    assert (
        "conv2d_ptr + rows * n_cols + cols," in rows and "conv2d.contiguous()" not in rows
    )  # a row is a pixel's channels
    pooled = relaid(source("return torch.nn.functional.max_pool2d(y, 2).sum((2, 3))"), "lower max_pool2d", "lower sum")
    assert "* n_channels + at_channel" in pooled and "2d.contiguous()" not in pooled
    first = relaid(source("return torch.exp(y).sum(3)"), "lower sum")
    assert "launch_sum_1(exp.contiguous())" in first  # channels and rows of pixels would be left in another order
    crossing = relaid(source("return torch.exp(y) * y.mean(2, keepdim=True)"), "fuse exp and mul")
    assert "launch_exp_mul(conv2d_in_order, mean.contiguous())" in crossing  # means lie channels first


def test_a_view_of_what_a_kernel_leaves_channels_last_is_of_its_elements_in_order() -> None:
    """A map that lies channels last is copied in order before it is seen as rows, by the kernel of the convolution."""
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = self.f(x)
        rows = y.flatten(1).softmax(-1)
        y.mul_(3)
        return rows, y

def get_inputs():
    return [torch.randn(n, 16, 8, 8).to(memory_format=torch.channels_last)]

def get_init_inputs():
    return []

n = 4
VARIANTS = {"small": {"n": 2}, "odd1": {"n": 3}}
"""
    assert interpret([{"name": "rows", "source": source, "ways": [["fuse conv2d and clone"]]}]) == {"rows": None}
