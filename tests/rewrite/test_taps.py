"""Windows whose taps a kernel over rows or elements goes through itself: depthwise convolution and pooling under a norm."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, after, version

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, layer_norm, max_pool2d

N, C, H, W = 4, 32, 20, 24
VARIANTS = {{
    "small": {{"N": 2, "C": 8, "H": 6, "W": 7}},
    "odd1": {{"N": 1, "C": 13, "H": 9, "W": 5}},
    "odd2": {{"N": 3, "C": 5, "H": 4, "W": 8}},
}}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = {conv}
        self.norm = nn.LayerNorm(channels)
        self.mix = nn.Linear(channels, channels)

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return [C]
"""
IMAGE, ROW = "N, C, H, W", "N, C, W"
LAST = "return self.norm(self.conv(x).permute(0, 2, 3, 1))"
DEPTHWISE = {
    "padded": ("nn.Conv2d(channels, channels, 7, padding=3, groups=channels)", LAST),
    "unpadded": ("nn.Conv2d(channels, channels, 3, groups=channels, bias=False)", LAST),
    "uneven": ("nn.Conv2d(channels, channels, (3, 5), padding=(0, 2), groups=channels)", LAST),
    "in_steps": ("nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels)", LAST),
    "dilated": ("nn.Conv2d(channels, channels, 3, padding=2, dilation=2, groups=channels)", LAST),
    "of_a_row": (
        "nn.Conv1d(channels, channels, 5, padding=2, groups=channels)",
        "return self.norm(self.conv(x).transpose(1, 2)) + x.transpose(1, 2)",
    ),
    "block": (
        "nn.Conv2d(channels, channels, 7, padding=3, groups=channels)",
        "y = torch.relu(self.mix(self.norm(self.conv(x).permute(0, 2, 3, 1)))); return x + y.permute(0, 3, 1, 2)",
    ),
}
OTHERS = {
    "work_before": ("nn.Identity()", "return layer_norm(avg_pool2d(torch.cos(x), 3, 1, 1).permute(0, 2, 3, 1), (C,))"),
    "largest": ("nn.Identity()", "return max_pool2d(x - 9.0, 3, 2, 1).permute(0, 2, 3, 1).softmax(-1)"),
    "moved_and_added": ("nn.Identity()", "return avg_pool2d(x, 3, 1, 1).permute(0, 2, 3, 1) + x.permute(0, 2, 3, 1)"),
    "half_a_row": (
        "nn.Conv2d(channels, 2 * channels, 3, padding=1, groups=channels)",
        "return self.conv(x).permute(0, 2, 3, 1).softmax(-1)",
    ),
}
CHANNELS = "rewrite by algebra: conv2d takes its channels last"


def source(conv: str, body: str) -> str:
    return REFERENCE.format(conv=conv, body=body, shape=ROW if "Conv1d" in conv else IMAGE)


def task_of(name: str) -> Task:
    return task_from_source(source(*{**DEPTHWISE, **OTHERS}[name]), name)


def test_they_are_right_at_all_shapes() -> None:
    cases = [
        {
            "name": name,
            "source": source(*parts),
            "ways": [["lower", "fuse"], ["rewrite by algebra: conv", "lower", "fuse"]],
        }
        for name, parts in DEPTHWISE.items()
    ]
    cases += [{"name": name, "source": source(*parts), "ways": [["lower", "fuse"]]} for name, parts in OTHERS.items()]
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", ["padded", "in_steps", "of_a_row"])
def test_the_sums_and_the_norm_are_one_kernel(name: str) -> None:
    start = version(task_of(name), root_plan(export_graph(task_of(name))))
    action, child = after(start, "rewrite by algebra: conv")
    assert "and fuse" not in action.sentence
    _, child = after(
        start, next(each.sentence for each in actions_on(start) if "takes its channels last, and fuse" in each.sentence)
    )
    kernels = [stage for stage in child.plan.stages if not stage.is_torch]
    assert [stage.template for stage in kernels] == ["pointwise", "rowwise"]
    text = print_plan(child.task, child.graph, child.plan).source
    assert "def pack(self)" in text  # the weights' copy is kept between calls
    assert "tap_w in tl.static_range" in text


def test_the_operand_is_copied_in_tiles() -> None:
    start = version(task_of("padded"), root_plan(export_graph(task_of("padded"))))
    _, child = after(start, f"{CHANNELS}, and fuse")
    copy = next(stage for stage in child.plan.stages if stage.template == "pointwise")
    assert dict(copy.schedule)["tile"] == 64


@pytest.mark.parametrize(
    ("conv", "body"),
    [
        ("nn.Conv2d(channels, channels, 3, padding=1)", LAST),  # of all channels
        ("nn.Conv2d(channels, channels, 3, padding=1, groups=channels)", "return torch.relu(self.conv(x))"),
        (
            "nn.Conv2d(channels, channels, 3, padding=1, groups=channels)",
            "return self.norm(self.conv(x.mT).permute(0, 2, 3, 1))",
        ),
    ],
)
def test_others_keep_their_channels(conv: str, body: str) -> None:
    task = task_from_source(source(conv, body), "other")
    assert not [
        each
        for each in actions_on(version(task, root_plan(export_graph(task))))
        if "channels last" in each.sentence and each.kind == "algebra"
    ]


def test_windows_of_windows_stay_apart() -> None:
    body = "return self.norm(avg_pool2d(self.conv(x), 3, 1, 1).permute(0, 2, 3, 1))"
    task = task_from_source(source("nn.Conv2d(channels, channels, 3, padding=1, groups=channels)", body), "twice")
    plan = apply(task, ["lower", "fuse"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == ["windows", "rowwise"]
