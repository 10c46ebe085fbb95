"""What a build tells of a version that is timed on a GPU."""

from __future__ import annotations

import pytest
import torch

from mtmc.evaluate.compiling import stand_in
from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.compiling.compiled_kernel import Kernel
from mtmc.evaluate.compiling.launched import Launch, Layout
from mtmc.evaluate.compiling.target import target
from mtmc.evaluate.compiling.torch_calls import TorchCall, torch_calls
from mtmc.evaluate.compiling.trace import Trace
from mtmc.evaluate.estimates.built import built_metrics
from mtmc.evaluate.estimates.resources import Resources
from mtmc.hardware import HARDWARE


def kernel(name: str, warps: int) -> Kernel:
    return Kernel(name, name, 1, {}, 0, warps, 1, 1, 32)


def test_the_metrics_are_those_of_the_launches():
    x, mask = Layout("bfloat16", (64, 128), (128, 1), 0), Layout("bool", (64, 128), (0, 1), 0)
    launches = (
        Launch("small", 0, (10, 1, 1), {"x": x, "n": 3}, {}),
        Launch("large", 1, (100, 2, 1), {"x": x, "mask": mask}, {"BLOCK": 4}),
        Launch("large", 1, (100, 2, 1), {"x": x}, {}),
    )
    calls = (TorchCall("aten.mm", 1000),)
    built = Built(launches, (kernel("small", 4), kernel("large", 8)), {}, calls=calls)
    found = built_metrics(built, [Resources(32, 0, 100), Resources(255, 16, 90_000)], HARDWARE["H100"])
    assert (found["kernels"], found["bytes_moved"]) == (4, 3 * 2 * 64 * 128 + 128 + 1000)
    assert (found["registers"], found["spills"], found["shared_memory"], found["programs"]) == (255, 16, 90_000, 200)
    # 1 block of 8 warps by registers; 16 of 4 by threads; weights 10 x 4 and 2 x 200 x 8
    assert found["occupancy"] == pytest.approx((40 * 1.0 + 3200 * 8 / 64) / 3240)


def test_a_version_of_library_calls_has_no_registers():
    found = built_metrics(Built((), (), {}, calls=(TorchCall("aten.add", 24),)), [], HARDWARE["H100"])
    assert found == {"kernels": 1.0, "bytes_moved": 24.0}


def test_torch_ops_that_a_gpu_would_run_are_noted():
    log: list[TorchCall] = []
    x, row = torch.ones(4, 8), torch.ones(8)
    with torch_calls(log):
        y = torch.empty(4, 8).view(8, 4).t()
        y.copy_(x)
        (x + row).relu_().contiguous().flatten()[1:].detach()
        row.expand(4, 8) * x
    assert [each.name for each in log] == ["aten.copy_", "aten.add", "aten.relu_", "aten.mul"] and log[
        0
    ].bytes_moved == 256
    assert [each.bytes_moved for each in log[1:]] == [128 + 32 + 128, 128, 32 + 128 + 128]


def test_a_rehearsal_before_a_capture_is_not_counted():
    trace = Trace(target("sm_90"))
    trace.calls.append(TorchCall("aten.add", 24))
    trace.launches.append(Launch("small", 0, (1, 1, 1), {}, {}))
    stand_in.on_capture[:] = [trace._rehearsed]
    try:
        with trace.unrecorded():
            stand_in.CUDAGraph().capture_begin()
        assert trace.calls and trace.launches
        with stand_in.replacements(False)["graph"](stand_in.CUDAGraph()):
            assert not trace.calls and not trace.launches
    finally:
        stand_in.on_capture.clear()
