"""What the profiler sees a forward do on the device. Runs in a candidate's process, so it is a witness, not the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LISTED = 64
"""Kernels named at most."""


def kernels_of(forward: Callable[[], None], calls: int) -> dict[str, Any]:
    """Run `forward` `calls` times under torch's profiler (CUPTI).

    Returns: "count" of device activities, "names" of the distinct kernels (the first `LISTED`), "busy_ms": their
    summed durations a call. Counts and times include what the evaluator itself does in `forward`.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            forward()
    device = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = sorted({event.name for event in device})
    busy_us = sum(float(event.device_time) for event in device)
    return {"count": len(device) / calls, "names": names[:LISTED], "busy_ms": busy_us / calls / 1e3}
