"""The roofline that Triton launches and torch ops share: rates a GPU sustains, and how times are combined.

The constants are fitted, see `mtmc.evaluate.estimates.estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mtmc.hardware import Hardware

Record = Mapping[str, Any]
"""See `mtmc.evaluate.counting.traffic`."""

DRAM_EFFICIENCY = 0.87
"""Of the peak: streams reach 0.84 to 0.88 of it on H100 and H200."""
ALU_EFFICIENCY = 0.88
"""Sustained clock over boost clock."""
CACHED = 0.42
"""Of L2 that holds one kernel's data for the next: each half of it keeps its own copies."""
KEPT, FULL = 0.5, 1.0
"""Of L2, between which data that a kernel reads again dies out of it. Met by norms and softmaxes in several passes on an
H100, with 4 to 16 programs an SM."""
SM_BYTES_NS = 60.0
"""The most bytes a nanosecond that one SM takes from or gives to L2."""
GRAPHED_SHARE = 0.5
"""Of what a launch costs: what it costs inside a CUDA graph, where the device goes on by itself. Assumed, not timed."""


@dataclass(frozen=True)
class KernelEstimate:
    """One kernel of a forward. Times in milliseconds, without each other; `ms` is what they come to with the launch.

    bound: name of the longest of the times. occupancy: resident threads over the most an SM can hold, None for torch.
    dram_bytes: estimated to reach DRAM.
    """

    name: str
    ms: float
    times: Mapping[str, float]
    bound: str
    dram_bytes: float
    occupancy: float | None = None


def balance(programs: int, gpu: Hardware) -> float:
    """Share of the SMs' time that has work: the last programs leave some of them idle."""
    each = programs / gpu.sms
    return each / math.ceil(each)


def issue_rate(gpu: Hardware) -> float:
    """Issue slots a nanosecond, on all SMs."""
    return gpu.sms * gpu.fp32_lanes * gpu.clock_ghz * ALU_EFFICIENCY


def norm(power: float, times: Iterable[float]) -> float:
    """The p-norm of times: their sum at power 1, nearly the longest at a large one."""
    return float(sum(t**power for t in times) ** (1 / power))


def l2_miss(working_set: float, gpu: Hardware) -> float:
    """Share of repeated reads that miss L2, by the bytes used between: none below KEPT of it, all above all of it."""
    return min(1.0, max(0.0, (working_set / gpu.l2_bytes - KEPT) / (FULL - KEPT)))


def to_ms(nanoseconds: float) -> float:
    """GB/s are bytes a nanosecond, GFLOP/s flops a nanosecond: quotients are nanoseconds."""
    return nanoseconds / 1e6
