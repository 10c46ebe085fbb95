"""What the profiler sees a forward do on the device. Runs in a candidate's process, so it is evidence, not the clock."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mtmc.evaluate.measure.wire import Profiled

LISTED = 64
"""Kernels named at most."""


def kernels_of(forward: Callable[[], None], calls: int) -> Profiled:
    """Run `forward` `calls` times under torch's profiler (CUPTI)."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            forward()
    device = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = sorted({event.name for event in device})
    busy_us = sum(float(event.device_time) for event in device)
    return Profiled(len(device) / calls, tuple(names[:LISTED]), busy_us / calls / 1e3)
