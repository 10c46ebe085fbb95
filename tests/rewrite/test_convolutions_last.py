"""Convolutions by kernels over tensors whose channels lie last: right in all forms, and what is legal."""

from __future__ import annotations

import pytest

from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, child_of, version

TEMPLATE = """
import torch
from torch import nn

batch, size = 3, 24
VARIANTS = {{"small": {{"batch": 2, "size": {small}}}, "odd1": {{"batch": 1, "size": 5}}}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.{first}
        self.scale = nn.Parameter(torch.randn(24, *[1] * {rank}))

    def forward(self, x{more}):
        y = self.first({before})
        return {after}


def get_inputs():
    return [torch.randn(batch, {channels}, *[size] * {rank}){given}]


def get_init_inputs():
    return []
"""


def source(first: str, channels: int, after: str = "y", **more: object) -> str:
    given = {"before": "x", "rank": 2, "more": "", "given": "", "small": 6} | more
    return TEMPLATE.format(first=first, channels=channels, after=after, **given)


PLAIN = "Conv2d(8, 24, 3)"
CASES = {
    "plain": source(PLAIN, 8),
    "padded": source("Conv2d(8, 24, 3, padding=1)", 8),
    "strided": source("Conv2d(32, 24, 3, stride=2, padding=1)", 32),
    "dilated": source("Conv2d(32, 24, 3, dilation=2, padding=2)", 32),
    "unlike_sides": source("Conv2d(8, 24, (2, 3), stride=(1, 2), padding=(0, 1))", 8),
    "one_tap": source("Conv2d(40, 24, 1)", 40),
    "one_tap_strided": source("Conv2d(40, 24, 1, stride=2)", 40),
    "odd_channels": source("Conv2d(9, 24, 3, bias=False)", 9),
    "many_channels": source("Conv2d(48, 24, 3, padding=1)", 48),
    "slices_that_end": source("Conv2d(64, 24, 3, padding=1)", 64),
    "work_behind": source(PLAIN, 8, "torch.relu(y * self.scale)"),
    "a_residual": source("Conv2d(24, 24, 3, padding=1)", 24, "torch.relu(y + x)"),
    "another_one": source(
        PLAIN, 8, "torch.relu(y + z)", more=", z", given=", torch.randn(batch, 24, size - 2, size - 2)"
    ),
    "work_before": source("Conv2d(24, 24, 3, padding=1)", 24, before="torch.exp(x * self.scale)"),
    "volumes": source("Conv3d(8, 24, 3, padding=1)", 8, "y * self.scale", rank=3),
    "turned": source("ConvTranspose2d(8, 24, 3)", 8, "torch.tanh(y * self.scale)"),
    "turned_strided": source("ConvTranspose2d(32, 24, 3, stride=2, padding=1, output_padding=1)", 32),
    "turned_dilated": source("ConvTranspose2d(32, 24, 3, stride=2, dilation=3)", 32),
    "turned_volumes": source("ConvTranspose3d(8, 24, 3, stride=2, padding=1)", 8, "torch.relu(y)", rank=3),
    "turned_one_tap": source("ConvTranspose2d(32, 24, 1)", 32),
    "halves": source("Conv2d(8, 24, 3).half()", 8, before="x.half()", after="torch.relu(y)"),
}


def laid(text: str, *before: str, then: tuple[str, ...] = ()) -> Version:
    """The version after all actions of some kinds, channels last, and after some more."""
    task = task_from_source(text, "last")
    now = version(task)
    for kind in (*before, "layout", *then):
        while moves := actions_on(now, kind):
            plan = child_of(now, moves[0])
            assert plan is not None
            now = version(task, plan)
    return now


WAYS = ("lower", "fuse", "pack")


@pytest.mark.parametrize("ways", WAYS)
def test_all_are_right(ways: str) -> None:
    found = {}
    at = WAYS.index(ways)  # in a quick run each way has other cases
    for name, text in share([*list(CASES.items())[at:], *list(CASES.items())[:at]], len(WAYS)):
        made = laid(text, "lower") if ways == "lower" else laid(text, "fuse", "lower", then=(ways,))
        kernels = [stage for stage in made.kernels() if stage.template == "convolution"]
        assert [dict(stage.schedule)["layout"] for stage in kernels] == ["channels_last"], name
        found[name] = print_plan(made.task, made.graph, made.plan).source
    cases = [{"name": name, "source": CASES[name], "candidate": text} for name, text in found.items()]
    assert interpret(cases) == dict.fromkeys(found)


def test_filters_are_turned_once_where_weights_are_kept() -> None:
    made = laid(CASES["work_behind"], "fuse", "lower", then=("pack",))
    text = print_plan(made.task, made.graph, made.plan).source
    assert "first_weight_last = self.first.weight.contiguous(memory_format=torch.channels_last)" in text
    forward = text[text.index("def forward") :]
    assert "self.first.weight" not in forward.replace("(self.first.weight,", "(") and "first_weight_last" in forward


@pytest.mark.parametrize(
    ("first", "channels", "before", "layout"),
    [
        (PLAIN, 8, "x", "channels_last"),
        ("Conv2d(3, 24, 3)", 3, "x", ""),  # three are no line of memory
        ("Conv2d(8, 24, 3, groups=4)", 8, "x", ""),
        ("Conv1d(8, 24, 3)", 8, "x", ""),  # has no channels last
        ("Conv2d(8, 24, 3).half()", 8, "x.half()", ""),  # which tensor cores read either way
    ],
)
def test_a_kernel_of_a_convolution_starts_with_channels_last(
    first: str, channels: int, before: str, layout: str
) -> None:
    text = source(first, channels, before=before, rank=1 if "1d" in first else 2)
    task = task_from_source(text, "last")
    start = version(task)
    lowered = next(each for each in actions_on(start) if each.kind == "lower" and "conv" in each.sentence)
    plan = child_of(start, lowered)
    assert plan is not None
    [kernel] = [stage for stage in plan.stages if stage.template == "convolution"]
    assert dict(kernel.schedule).get("layout", "") == layout


REDUCED = {
    "smallest": source(PLAIN, 8, "torch.tanh((y * self.scale).amin(1, keepdim=True))"),
    "largest_and_where": source(PLAIN, 8, "y.max(1)[0] + y.argmax(1)"),
    "softmax": source(PLAIN, 8, "torch.sigmoid(torch.softmax(y, 1) + self.scale)"),
    "logsumexp": source("ConvTranspose2d(8, 24, 3, stride=2)", 8, "torch.relu(torch.logsumexp(y, 1, keepdim=True))"),
    "programs_left_over": source(
        "ConvTranspose3d(8, 24, 3, stride=2, padding=1)",
        8,
        "torch.sigmoid(torch.logsumexp(y, 1, keepdim=True))",
        rank=3,
        small=9,
    ),
    "norm_of_channels": source(
        "Conv2d(24, 24, 3, padding=1)",
        24,
        "x + (y - y.mean(1, keepdim=True)) * (y.var(1, keepdim=True, correction=0) + 1e-5).rsqrt() * self.scale",
    ),
    "mean_and_all": source(PLAIN, 8, "y - y.mean(1, keepdim=True)"),
    "volumes": source("Conv3d(8, 24, 3)", 8, "torch.softmax(y, 1) * self.scale", rank=3),
    "by_a_vector": source(PLAIN, 8, "y.sum(1) + z", more=", z", given=", torch.randn(size - 2)"),
    "three_channels": source("Conv2d(3, 24, 3)", 3, "y.amax(1)"),
    "halves": source("Conv2d(8, 24, 3).half()", 8, "torch.softmax(y, 1)").replace("* 2)]", "* 2).half()]"),
    "odd_filters": source("Conv2d(8, 21, 3)", 8, "torch.softmax(y, 1)"),
}


def fused_first(text: str) -> Version:
    """All as one kernel that takes tensors as they lie."""
    task = task_from_source(text, "first")
    start = version(task)
    stage = start.as_kernel(tuple(op.name for op in start.graph.ops), {})
    assert stage is not None
    return version(task, Plan((stage,)))


OF_ROUNDED = """
import torch
from torch import nn

batch, size = 3, 24
VARIANTS = {"small": {"batch": 2, "size": 9}, "odd1": {"batch": 1, "size": 7}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(24, 8, 3, 3) + 1)

    def forward(self, x):
        x, weight = ROUNDED
        return torch.conv2d(x, weight)


def get_inputs():
    return [torch.rand(batch, 8, size, size) + 1]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("swapped", [0, 1])
def test_operands_are_rounded_to_the_nearest_of_tf32(swapped: int) -> None:
    """From 1 to 2 these are multiples of 1/1024, which the reference here takes to the nearest itself."""
    task = task_from_source(OF_ROUNDED.replace("ROUNDED", "x, self.weight"), "rounded")
    start = version(task)
    stage = start.as_kernel(tuple(op.name for op in start.graph.ops), {})
    assert stage is not None
    plans = [Plan((stage.scheduled({"precision": way, "swapped": swapped}),)) for way in ("tf32_rounded", "tf32")]
    rounded, cut = (print_plan(task, start.graph, plan).source for plan in plans)
    reference = OF_ROUNDED.replace("ROUNDED", "torch.round(x * 1024) / 1024, torch.round(self.weight * 1024) / 1024")
    cases = [{"name": name, "source": reference, "candidate": text} for name, text in (("r", rounded), ("c", cut))]
    found = interpret(cases)
    assert found["r"] is None and "off by" in str(found["c"])


def test_channels_are_reduced_in_the_kernel_that_makes_them() -> None:
    found = {}
    for name, way in share([(name, way) for name in REDUCED for way in ("first", "last")], 3):
        text = REDUCED[name]
        made = laid(text, "fuse", "lower") if way == "last" else fused_first(text)
        kernels = [stage for stage in made.kernels() if stage.template == "convolution"]
        assert len(kernels) == 1 and len(made.working()) == 1, (name, way, made.plan)
        found[f"{name}-{way}"] = print_plan(made.task, made.graph, made.plan).source
    cases = [{"name": name, "source": REDUCED[name.split("-")[0]], "candidate": text} for name, text in found.items()]
    assert interpret(cases) == dict.fromkeys(found)
