"""Pools under other work in kernels that go over channels-last tensors: their taps are along places, not channels."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import product
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

MAPS, VOLUMES = "torch.randn(2, n, 9, 12)", "torch.randn(2, n, 5, 6, 7)"
FLAT, DEEP = "self.f = nn.Conv2d(n, m, 3, padding=1)", "self.f = nn.Conv3d(n, m, 3, padding=1)"
POOLED = {
    "log_of_sums": reference("torch.logsumexp(F.max_pool3d(self.f(x), 2, 2), 1, keepdim=True).relu()", VOLUMES, DEEP),
    "softmax": reference("F.avg_pool2d(self.f(x), 2).softmax(1)", MAPS, FLAT),
    "padded": reference("F.max_pool2d(self.f(x), 3, 2, 1).amax(1, keepdim=True)", MAPS, FLAT),
    "uneven": reference("F.max_pool2d(self.f(x), (2, 3)).sum(1, keepdim=True).tanh()", MAPS, FLAT),
    "dilated": reference("F.max_pool2d(self.f(x).relu(), 2, 1, dilation=2).mean(1, keepdim=True)", MAPS, FLAT),
    "over_places": reference("F.avg_pool2d(self.f(x), 3, 1, 1).sum((2, 3))", MAPS, FLAT),
    "alone": reference("F.max_pool2d(self.f(x), 2) * 2 + 1", MAPS, FLAT),
}
TILED = {
    "over_the_edges": reference("F.max_pool2d(self.f(x), 3, 1, 1)", MAPS, FLAT),
    "mean_over_the_edges": reference("F.avg_pool2d(self.f(x), 3, 2, 1, count_include_pad=False)", MAPS, FLAT),
    "to_the_ceiling": reference("F.avg_pool2d(self.f(x), 2, 2, ceil_mode=True)", MAPS, FLAT),
    "adaptive": reference("F.adaptive_avg_pool2d(self.f(x), (4, 5))", MAPS, FLAT),
    "many_taps": reference("F.max_pool2d(self.f(x), 7, 2, 3)", MAPS, FLAT),
    "volumes": reference("F.max_pool3d(self.f(x), 2)", VOLUMES, DEEP),
    "numbers_of_channels": reference(
        "F.max_pool2d(torch.exp(self.f(x) * self.scale), 3, 2, 1) + self.scale",
        MAPS,
        f"{FLAT}; self.scale = nn.Parameter(torch.rand(m, 1, 1))",
    ),
    "a_residual": reference("F.max_pool2d((y := self.f(x)) + y.sin(), 2) - F.max_pool2d(y, 2)", MAPS, FLAT),
    "few_channels": reference("F.max_pool2d(self.f(x), 2)", MAPS, "self.f = nn.Conv2d(n, 9, 3)"),
}


@pytest.mark.parametrize("name", ["log_of_sums", "softmax", "padded", "uneven"])
def test_they_are_one_kernel_channels_last(name: str) -> None:
    task = task_from_source(POOLED[name], "pooled")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [each for each in legal_moves(version) if each.action.kind == "layout" and "fuse" in each.action.sentence]
    assert move.child is not None
    [kernel] = [stage for stage in move.child.stages if not stage.is_torch]
    assert kernel.template == "rowwise" and is_channels_last(kernel)


@pytest.mark.parametrize(
    ("channels", "across"), [(480, 32), (64, 64), (256, 64), (100, 64), (9, 16), (24, 32), (96, 32)]
)
def test_a_program_has_a_tile_of_places_and_channels(channels: int, across: int) -> None:
    """A line of memory or two, of which few are left over; where a window is is worked out once a place."""
    text = reference("F.max_pool2d(self.f(x), 2)", "torch.randn(2, 16, n, m)", f"self.f = nn.Conv2d(16, {channels}, 3)")
    task = task_from_source(text, "tiled")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [each for each in legal_moves(version) if each.action.sentence.startswith("lower max_pool2d")]
    assert move.child is not None
    version = Version.of(task, move.child, hardware("H100"))
    [move] = [each for each in legal_moves(version) if each.action.kind == "layout"]
    assert move.child is not None
    [kernel] = [stage for stage in move.child.stages if not stage.is_torch]
    assert kernel.template == "windows" and kernel.number("across") == across
    printed = print_plan(task, version.graph, move.child).source
    assert "places = (block // blocks * ALONG + tl.arange(0, ALONG))[:, None]" in printed
    assert f"ACROSS={across}," in printed and f"ALONG={kernel.number('block') // across}," in printed
    elements = product(version.graph.values["max_pool2d"].shape)[0]
    assert kernel.number("block") in (128, 1024) or 1024 <= elements / kernel.number("block") < 2048


def test_tiles_are_right() -> None:
    """At any shape, with other blocks, and where channels are left over."""
    ways = [["lower", "keep tensors channels last"], ["fuse", "lower", "keep tensors channels last"]]
    ways += [["lower", "keep tensors channels last", "vectorize"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(TILED.items()), 2)]
    assert interpret(cases) == {case["name"]: None for case in cases}


def test_all_are_right() -> None:
    ways = [["keep tensors channels last", "fuse", "lower"], ["fuse", "keep tensors channels last"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in POOLED.items()]
    assert interpret(cases) == dict.fromkeys(POOLED)
