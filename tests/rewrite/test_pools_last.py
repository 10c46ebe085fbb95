"""Pools under other work in kernels that go over channels-last tensors: their taps are along places, not channels."""

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


@pytest.mark.parametrize("name", ["log_of_sums", "softmax", "padded", "uneven"])
def test_they_are_one_kernel_channels_last(name: str) -> None:
    task = task_from_source(POOLED[name], "pooled")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [each for each in legal_moves(version) if each.action.kind == "layout" and "fuse" in each.action.sentence]
    assert move.child is not None
    [kernel] = [stage for stage in move.child.stages if not stage.is_torch]
    assert kernel.template == "rowwise" and is_channels_last(kernel)


def test_all_are_right() -> None:
    ways = [["keep tensors channels last", "fuse", "lower"], ["fuse", "keep tensors channels last"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in POOLED.items()]
    assert interpret(cases) == dict.fromkeys(POOLED)
