"""The time of one Triton launch, from its record, its kernel's resources and the hardware table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mtmc.errors import EvaluatorError
from mtmc.evaluate.estimates.lanes import WARP
from mtmc.evaluate.estimates.loop_time import loop_times, on_cuda_cores
from mtmc.evaluate.estimates.occupancy import START_NS, blocks_per_sm, waves
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import (
    ALU_EFFICIENCY,
    DRAM_EFFICIENCY,
    SM_BYTES_NS,
    KernelEstimate,
    Record,
    balance,
    issue_rate,
    l2_miss,
    norm,
    to_ms,
)
from mtmc.evaluate.estimates.spills import spill_times
from mtmc.evaluate.estimates.tile_time import dot_latency_ms, product_ms
from mtmc.hardware import Hardware

_DISPATCH_CLOCKS = 1.2  # between two programs that the GPU starts: 1.65 programs a nanosecond on an H200
_DEPENDENT_CLOCKS = 2.0  # per instruction of a thread that runs alone
_STRAIGHT_WORDS = 64  # words that a thread has on their way in a kernel without loops
_BESIDE_LOOP = 4.0  # power of the norm of a loop of products and what runs beside it
_NARROW_SLOTS = 200.0  # per element of a 4-byte asynchronous copy, which Triton emits for strides it knows nothing of


def estimate_launch(record: Record, resources: Resources, gpu: Hardware, resident: float = 0.0) -> KernelEstimate:
    """Time of one Triton launch. resident: bytes of its reads that are still in L2.

    Raises: EvaluatorError if a program does not fit an SM.
    """
    name, programs, warps = record["kernel"], record["programs"], record["num_warps"]
    blocks = _fitting_blocks(record, resources, gpu)
    if programs == 0:
        return KernelEstimate(name, gpu.launch_us / 1e3, {"launch": gpu.launch_us / 1e3}, "launch", 0.0, 0.0)
    here = min(blocks, -(-programs // gpu.sms))  # programs that really share an SM
    spill_ms, spilled = spill_times(record, resources, gpu, here)
    dram = _dram_bytes(record, gpu, blocks, resident) + spilled
    times = {
        "dram": to_ms(dram / (gpu.dram_gbs * DRAM_EFFICIENCY)),
        "l2": _l2_ms(record, gpu),
        "alu": _alu_ms(_slots(record, resources), programs, here * warps, gpu),
        "spill": spill_ms,
    }
    if not record["dot_flops"]:
        times["latency"] = _latency_ms(record, resources, gpu, blocks)
        busy = norm(min(6.0, max(1.5, here * warps / 8)), times.values())
    elif resources.loop is not None and (resources.loop.tensor_flops or on_cuda_cores(record, gpu)):
        of_loop, loop_ms = loop_times(record, resources, resources.loop, gpu, blocks)
        busy = norm(_BESIDE_LOOP, (loop_ms + times.pop("spill"), *times.values()))
        times |= of_loop | {"spill": spill_ms}
    else:
        busy = _by_tile(record, resources, gpu, blocks, times)
    busy = max(busy, to_ms(programs * _DISPATCH_CLOCKS / gpu.clock_ghz))
    bound = max(times, key=lambda key: times[key])
    times["launch"] = gpu.launch_us / 1e3
    occupancy = blocks * warps * gpu.warp_size / gpu.max_threads_per_sm
    return KernelEstimate(name, busy + times["launch"], times, bound, dram, occupancy)


def _by_tile(record: Record, resources: Resources, gpu: Hardware, blocks: int, times: dict[str, float]) -> float:
    """Adds the times of tile products to `times`. Returns: what all of them come to, milliseconds."""
    programs = record["programs"]
    here = min(blocks, -(-programs // gpu.sms))
    product, split = product_ms(record, resources, gpu, here * record["num_warps"])
    times["tensor"] = product + split
    alone = times["tensor"] / programs * min(programs, gpu.sms)
    throughput = norm(2.0, times.values())
    times["latency"] = dot_latency_ms(record, resources, gpu, blocks, alone, split > 0)
    return norm(3.0, (throughput, times["latency"]))


def _fitting_blocks(record: Record, resources: Resources, gpu: Hardware) -> int:
    warps = record["num_warps"]
    blocks = blocks_per_sm(warps, resources, gpu)
    if blocks == 0:
        raise EvaluatorError(
            f"a program of kernel {record['kernel']!r} ({warps} warps, {resources.registers} registers a thread, "
            f"{resources.shared_bytes} B of shared memory) does not fit an SM of {gpu.name}; use fewer warps or "
            "stages, or smaller blocks"
        )
    return blocks


def _dram_bytes(record: Record, gpu: Hardware, blocks: int, resident: float) -> float:
    """Bytes that reach DRAM: compulsory ones, and those re-read that L2 no longer holds.

    A program that reads a byte again finds it if what the programs then running have read fits L2. Data shared between
    programs is read once by each wave of them, or once in all if all of it fits. Who reads what another one read some
    programs before finds it if all that was read and written since, by those and half of the running ones, fits. Small
    storages are always found.
    """
    programs, compulsory = record["programs"], record["unique_read"]
    hot, written = record["hot_read"] / programs, record["unique_written"] / programs
    own = min(record["program_read"], max(record["program_read"] - hot, compulsory / programs))
    again = max(0.0, record["bytes_read"] - record["hot_read"] - own * programs)
    running = min(programs, blocks * gpu.sms)
    per_wave = _window(record["window_read"], running, own)
    waves = programs / running
    trailing = record.get("trailing_read", 0.0)
    shared = max(0.0, min(per_wave * waves, own * programs) - compulsory - trailing)
    missed = again * l2_miss((own + written) * running, gpu) + shared * l2_miss(compulsory, gpu)
    since = (record.get("trailing", 0) + running / 2) * (own - trailing / programs + written)
    missed += trailing * l2_miss(since, gpu)
    return float(max(0.0, compulsory - resident) + missed + record["unique_written"])


def _window(curve: Mapping[str, float], programs: int, own: float) -> float:
    """Unique bytes that so many neighbours read together; beyond the curve it goes on as it ended."""
    known = sorted((int(n), float(size)) for n, size in curve.items())
    if not known:
        return own * programs
    below = max((pair for pair in known if pair[0] <= programs), default=(1, own))
    above = min((pair for pair in known if pair[0] >= programs), default=None)
    if above is None:
        before = max((pair for pair in known if 2 * pair[0] <= below[0]), default=below)
        rises = before[0] < below[0] and 0 < before[1] <= below[1]  # the first programs may read nothing: masked tails
        power = math.log(below[1] / before[1]) / math.log(below[0] / before[0]) if rises else 1.0
        return below[1] * float((programs / below[0]) ** power)
    if above[0] == below[0]:
        return below[1]
    return below[1] + (above[1] - below[1]) * (programs - below[0]) / (above[0] - below[0])


def _l2_ms(record: Record, gpu: Hardware) -> float:
    # Small storages come from the SM's own cache, except into products, whose copies pass it by.
    near = 0.0 if record["dot_flops"] else record["hot_read"]
    sectors = max(0.0, record["sector_read"] - near) + record["sector_written"]
    # Scattered accesses also pay in the SM: each sector is a request of its own.
    scattered = record["sector_read"] > 2 * max(1, record["bytes_read"])
    return to_ms(sectors / gpu.l2_gbs * (2.0 if scattered else 1.0))


def _slots(record: Record, resources: Resources) -> float:
    """Issue slots outside products: counted ones, and narrow copies into shared memory."""
    mix = resources.instruction_mix
    copies = sum(count for opcode, count in mix.items() if opcode.startswith("LDGSTS."))
    narrow = mix.get("LDGSTS.32", 0) / copies if copies else 0.0
    counted = record["alu_ops"]
    if resources.straight:  # what elements have in common is counted for each of them, and worked out once
        counted = min(counted, resources.straight * record["num_warps"] * WARP * record["programs"])
    return float(counted + narrow * record["bytes_read"] / 4 * _NARROW_SLOTS)


def _alu_ms(slots: float, programs: int, warps: int, gpu: Hardware) -> float:
    rate = issue_rate(gpu) * balance(programs, gpu)
    return to_ms(slots / rate / min(1.0, 0.3 + warps / 12))


def _latency_ms(record: Record, resources: Resources, gpu: Hardware, blocks: int) -> float:
    """Waves of programs x one program's rounds of loads and its own arithmetic."""
    programs, rounds = record["programs"], record["rounds"]
    threads = record["num_warps"] * gpu.warp_size
    loaded = record["bytes_read"] / programs / max(1.0, rounds)
    # A loop with little to load per thread is unrolled, so that several rounds are under way together; one that is unrolled
    # in the source whole, as many as registers hold.
    words = max(1.0, loaded / 4 / threads)
    depth = max(1.0, _STRAIGHT_WORDS / words) if resources.straight else min(4.0, max(1.0, 16 / words))
    depth = depth if rounds > 4 else 1.0
    instructions = _slots(record, resources) / programs / threads
    program_ns = START_NS + rounds * (gpu.latency_ns + loaded / SM_BYTES_NS) / depth
    program_ns += instructions * _DEPENDENT_CLOCKS / (gpu.clock_ghz * ALU_EFFICIENCY)
    return to_ms(waves(programs, blocks, gpu) * program_ns)
