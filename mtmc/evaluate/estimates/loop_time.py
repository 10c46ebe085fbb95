"""The time of a launch that multiplies tiles, from the machine code of its loop.

One turn of the loop keeps an SM busy, for each program that it holds, nanoseconds:

    tensor   flops of the tensor core instructions / (peak of one SM x efficiency)
    issue    instructions x warps / 4 schedulers x clock; FMAs no faster than the SM's lanes
    shared   clocks of shared memory, bank conflicts counted, x warps / clock
    wait     the part of a load's latency that no stage of the pipeline hides / programs on the SM

On tensor cores a program splits or turns its operands in shared memory, waits for all of its warps, multiplies and waits
again, so that the times nearly add up, less so the more programs an SM holds: a turn takes the p-norm of the four, with
p = ADDED + OVERLAP x (programs - 1). On CUDA cores the warps do not wait for each other:
p = 1 + FMA_OVERLAP x (warps of a scheduler - 1). An SM's programs come in groups of as many as fit.

The constants were fitted to 134 launches timed on an H100: 85 of versions of built-in tasks (batched_matmul, linear,
linear_gelu, matmul_max, mlp, residual_norm) and 49 of the kernels of `benchmarks/estimate_kernels.py`. Root mean square of
the logarithm of estimate / time: 0.108; fitted to one half of the tasks, 0.108 and 0.118 on the other.
"""

from __future__ import annotations

import math

from mtmc.evaluate.estimates.lanes import WARP
from mtmc.evaluate.estimates.machine_code import Loop
from mtmc.evaluate.estimates.occupancy import START_NS
from mtmc.evaluate.estimates.resources import Resources, tensor_kind
from mtmc.evaluate.estimates.roofline import Record, norm, to_ms
from mtmc.hardware import Hardware, tensor_rate

SCHEDULERS = 4
EFFICIENCY = {"wgmma": 0.75, "mma on wgmma hardware": 0.68, "mma": 0.85}
"""Of the peak of the tensor cores. The last was not measured."""
ADDED, OVERLAP, FMA_OVERLAP, MOST_OVERLAP = 1.15, 0.12, 0.45, 6.0
EXPOSED = {1: 1.0, 2: 0.7}
"""Part of the latency of a load that is waited for, by stages of the pipeline; 0 with more."""


def on_cuda_cores(record: Record, gpu: Hardware) -> bool:
    """Whether products of this type and precision are made of fused multiply-adds."""
    return record["dot_dtype"] in ("fp32", "fp64") and record["dot_precision"] == "ieee" and gpu.warp_size == WARP


def turns_of(record: Record) -> float:
    """How often a program goes through its loop: once for each product, or for all products of one round of loads."""
    return float(max(1.0, min(record["dots"], record["rounds"])))


def loop_times(
    record: Record, resources: Resources, loop: Loop, gpu: Hardware, blocks: int
) -> tuple[dict[str, float], float]:
    """Milliseconds of all turns, by what is waited for, and what they come to together.

    blocks: programs that fit an SM. A program's start and its first load, which all of a group make together, are part
    of "latency" and added to the turns. Where all programs run at once, the one with most products is waited for.
    """
    each = math.ceil(record["programs"] / gpu.sms)
    here = min(blocks, each)
    full, left = divmod(each, here)
    uneven = max(1.0, record.get("dots_most", 0.0) / max(1.0, record["dots"])) if each == here else 1.0
    times: dict[str, float] = {}
    busy = 0.0
    for together, times_over in ((here, full), (left, min(1, left))):
        turn = _turn(record, resources, loop, gpu, max(1, together))
        turns = turns_of(record) * uneven * together * times_over
        start = times_over * (START_NS + gpu.latency_ns)
        busy += to_ms(turns * norm(_overlap(record, loop, together), turn.values()) + start)
        for key, nanoseconds in turn.items():
            times[key] = times.get(key, 0.0) + to_ms(turns * nanoseconds)
        times["latency"] = times.get("latency", 0.0) + to_ms(start)
    times["latency"] += times.pop("wait")
    return times, busy


def _turn(record: Record, resources: Resources, loop: Loop, gpu: Hardware, here: int) -> dict[str, float]:
    """Nanoseconds of one turn of one program, of `here` that share an SM."""
    warps = record["num_warps"]
    peak = tensor_rate(record["dot_dtype"], record["dot_precision"], gpu)[0] * 1e3 / gpu.sms
    schedulers = min(SCHEDULERS, warps * here)  # a program of one warp keeps one of them busy
    multiplied = 0.0 if loop.tensor_flops else loop.fma_flops * warps / (2 * gpu.fp32_lanes)
    return {
        "tensor": loop.tensor_flops * warps / (peak * EFFICIENCY[tensor_kind(resources, gpu)]),
        "issue": max(loop.issued * warps / schedulers, multiplied) / gpu.clock_ghz,
        "shared": loop.shared_clocks * warps / gpu.clock_ghz,
        "wait": EXPOSED.get(max(1, record["num_stages"]), 0.0) * gpu.latency_ns / here,
    }


def _overlap(record: Record, loop: Loop, here: int) -> float:
    if loop.tensor_flops:
        return min(MOST_OVERLAP, ADDED + OVERLAP * max(0, here - 1))
    return min(MOST_OVERLAP, 1 + FMA_OVERLAP * max(0.0, here * record["num_warps"] / SCHEDULERS - 1))
