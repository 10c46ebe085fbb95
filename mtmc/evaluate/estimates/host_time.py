"""What the host takes for a forward that is called again and again, by its launches. Pure.

One version of five Triton launches took 0.210 ms a call in a loop on an H100 machine (0.118 ms of the device), so a launch
from Python with the call, the sizes and the output that belong to it takes about 40 us. An eager op takes some 5 to 10 us. A
replayed CUDA graph is one launch, with the copies around it and the look at the inputs. Python's speed differs between
machines by a factor of two, so these are softer than any figure of a GPU.
"""

from __future__ import annotations

TRITON_US = 40.0
"""Of one Triton launch."""
OP_US = 7.0
"""Of one torch op."""
REPLAY_US = 30.0
"""Of replaying a CUDA graph, without the copies."""
LAUNCH_BOUND = 1.1
"""Time a call over device time from which on a version's time is launches."""
NEARLY_BOUND = 0.7
"""The host's time over the device's from which on it may be the limit: it differs by half between machines, and on a busy
one from hour to hour (H100, decoding attention of three kernels: 0.115 ms while it was searched, 0.185 once verified, and
0.122 of the device; H200, a residual block of eight: 0.33 ms and 0.36, and 0.31 of the device)."""


def host_us(launches: int, ops: int, graphed: bool = False) -> float:
    """Microseconds of the host a call. launches, ops: Triton launches and torch ops that are launched one by one; graphed:
    whether a CUDA graph is replayed between them."""
    return launches * TRITON_US + ops * OP_US + (REPLAY_US if graphed else 0.0)


def launch_bound(device_ms: float | None, call_ms: float | None) -> bool:
    """Whether what a call takes is the host's launches and not the device's work; no where one of both is not known."""
    return bool(device_ms and call_ms and call_ms > LAUNCH_BOUND * device_ms)


def nearly_launch_bound(device_ms: float | None, host_ms: float | None) -> bool:
    """Whether the host's launches may be what a call takes, on another machine or after the next fusion."""
    return bool(device_ms and host_ms and host_ms > NEARLY_BOUND * device_ms)
