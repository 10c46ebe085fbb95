"""Norms between what is convolved and what reduces the result: two kernels, neither of which writes what is between them."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"n": (16, 4, 3), "c": (32, 8, 12), "m": (24, 8, 7)}
MAPS, VOLUMES = "torch.randn(n, 8, m, m + 2)", "torch.randn(n, 8, 6, m, 7)"
GROUPS = "self.f = nn.Conv2d(8, c, 3, padding=1)\nself.norm = nn.GroupNorm(4, c)"
DEEP = "self.f = nn.Conv3d(8, c, 3, padding=1)\nself.norm = nn.GroupNorm(4, c)"
ANEW = "rewrite by algebra: {} is elementwise once its statistics are known, and fuse all"
LAST = "keep tensors channels last"


def convolved(result: str, inputs: str = MAPS, layers: str = GROUPS) -> str:
    return reference(result, inputs, layers, SIZES)


NORMS = {
    "pooled": (convolved("torch.clamp(F.max_pool2d(self.norm(self.f(x)) * 0.5, 3), 0, 1)"), "group_norm"),
    "overlapping": (convolved("F.avg_pool2d(F.gelu(self.norm(self.f(x))), 3, 2, 1)"), "group_norm"),
    "log_of_sums": (
        convolved("(lambda y: torch.logsumexp(y + torch.tanh(self.norm(y)), 1, keepdim=True))(self.f(x))"),
        "group_norm",
    ),
    "largest": (convolved("self.norm(F.hardswish(self.f(x))).amax(1)"), "group_norm"),
    "volumes": (convolved("F.softmax(self.norm(self.f(x)), 1)", VOLUMES, DEEP), "group_norm"),
    "without_a_bias": (
        convolved("F.max_pool2d(self.norm(self.f(x)), 2)", layers=GROUPS.replace("padding=1", "bias=False")),
        "group_norm",
    ),
    "instances": (
        convolved(
            "F.max_pool2d(self.norm(self.f(x)), 2)", layers=GROUPS.replace("Group", "Instance").replace("4, c", "c")
        ),
        "instance_norm",
    ),
    "batches": (
        convolved(
            "F.max_pool2d(torch.tanh(self.norm(self.f(x))), 2)",
            layers=GROUPS.replace("GroupNorm(4, c", "BatchNorm2d(c"),
        ),
        "batch_norm",
    ),
}
NORMS["instances"] = (NORMS["instances"][0].replace("InstanceNorm", "InstanceNorm2d"), "instance_norm")


def moved(version: Version, beginning: str) -> Version:
    move = next(each for each in legal_moves(version) if each.action.sentence.startswith(beginning))
    assert move.child is not None
    return Version.of(version.task, move.child, version.hardware)


def rewritten(name: str) -> Version:
    """The version with statistics and elementwise work in kernels of their own."""
    source, norm = NORMS[name]
    task = task_from_source(source, name)
    return moved(Version.of(task, root_plan(export_graph(task)), hardware("H100")), ANEW.format(norm))


def test_all_are_right_channels_first_and_last() -> None:
    ways = {name: [[ANEW.format(norm)], [ANEW.format(norm), LAST]] for name, (_, norm) in NORMS.items()}
    cases = [{"name": name, "source": source, "ways": ways[name]} for name, (source, _) in NORMS.items()]
    assert interpret(cases) == dict.fromkeys(NORMS)


@pytest.mark.parametrize("name", NORMS)
def test_two_kernels_follow_the_convolution(name: str) -> None:
    """The first leaves statistics alone, so that the second reads what was convolved once more."""
    at = rewritten(name)
    library, statistics, behind = at.working()
    assert library.is_torch and not statistics.is_torch and not behind.is_torch
    left = [at.graph.values[out].numel() for out in at.graph.leaving(statistics.ops)]
    assert len(left) >= 2 and max(left) < 1000


@pytest.mark.parametrize("name", NORMS)
def test_both_read_channels_that_lie_last(name: str) -> None:
    last = moved(rewritten(name), LAST)
    assert all(is_channels_last(stage) for stage in last.kernels())


def test_a_kernel_with_a_pool_and_a_norm_in_it_starts_with_an_element_a_thread() -> None:
    """All taps of an element are loaded at once, each with its group's statistics."""
    kernel = rewritten("pooled").kernels()[-1]
    assert kernel.template == "pointwise"
    assert kernel.number("block") == 32 * kernel.number("num_warps")


def test_few_numbers_before_a_window_are_no_work_of_its_kernel() -> None:
    """One number a channel, worked out before what is pooled, and before what is convolved."""
    inputs = "torch.randn(n, 8, 4, 6), torch.randn(n, 8, 1, 1).abs(), torch.randn(n, 8, 1, 1)"
    cases = [
        {"name": name, "source": convolved(result, inputs), "ways": [["lower", "fuse"]]}
        for name, result in {
            "pooled": "F.max_pool2d((x - z) * torch.rsqrt(y + 1e-5), 2)",
            "convolved": "self.f((x - z) * torch.rsqrt(y + 1e-5))",
        }.items()
    ]
    assert interpret(cases) == {"pooled": None, "convolved": None}
