"""The time of one Triton launch, from its record, its kernel's resources and the hardware table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mtmc.errors import EvaluatorError
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import (
    ALU_EFFICIENCY,
    CACHED,
    DRAM_EFFICIENCY,
    KernelEstimate,
    Record,
    balance,
    issue_rate,
    norm,
    tensor_rate,
    to_ms,
)
from mtmc.evaluate.hardware import Hardware

_DISPATCH_CLOCKS = 1.2  # between two programs that the GPU starts: 1.65 programs a nanosecond on an H200
_START_NS = 350.0  # of a program: being placed, first instructions, its stores leaving
_DEPENDENT_CLOCKS = 2.0  # per instruction of a thread that runs alone
_SM_BYTES_NS = 60.0  # most that one SM takes in
_SYNC_NS, _WGMMA_SYNC_NS = 300.0, 50.0  # of a tile product: barriers and waiting; less where products are asynchronous
_TENSOR_EFFICIENCY = {"wgmma": 0.80, "mma": 0.70, "mma on wgmma hardware": 0.55}
_SPLIT_SLOTS = {True: 12.0, False: 9.5}  # per operand element split in parts; with wgmma they go to shared memory
_TURN_SLOTS = 22.0  # per thread and 4-byte store to shared memory of a transposed operand
_FMA_OVERHEAD = 9.0  # shared memory loads of a product on CUDA cores: slots = flops / 2 x (1 + this x loads a product)
_NARROW_SLOTS = 200.0  # per element of a 4-byte asynchronous copy, which Triton emits for strides it knows nothing of
_SPILL_SLOTS = 8.0  # per word stored or loaded
_L1_SPILL_BYTES = 128 * 1024


def blocks_per_sm(warps: int, resources: Resources, gpu: Hardware) -> int:
    """How many programs an SM can hold at once: the least of four limits.

    threads: max_threads_per_sm / threads; blocks: max_blocks_per_sm; shared memory: shared_per_sm / (bytes, and 1 KiB
    that the system keeps of each block); registers: 4 partitions of registers_per_sm / 4, a warp's share of one being
    its registers a thread, rounded up to 8, x warp size.
    """
    threads = warps * gpu.warp_size
    by_threads = gpu.max_threads_per_sm // threads
    warp_registers = -(-max(1, resources.registers) // 8) * 8 * gpu.warp_size
    by_registers = 4 * (gpu.registers_per_sm // 4 // warp_registers) // warps
    kept = 1024 if gpu.warp_size == 32 else 0
    by_shared = gpu.shared_per_sm // max(1, resources.shared_bytes + kept)
    return min(by_threads, gpu.max_blocks_per_sm, by_shared, by_registers)


def estimate_launch(record: Record, resources: Resources, gpu: Hardware, resident: float = 0.0) -> KernelEstimate:
    """Time of one Triton launch. resident: bytes of its reads that are still in L2.

    Raises: EvaluatorError if a program does not fit an SM.
    """
    name, programs, warps = record["kernel"], record["programs"], record["num_warps"]
    blocks = _fitting_blocks(record, resources, gpu)
    if programs == 0:
        return KernelEstimate(name, gpu.launch_us / 1e3, {"launch": gpu.launch_us / 1e3}, "launch", 0.0, 0.0)
    here = min(blocks, -(-programs // gpu.sms))  # programs that really share an SM
    dram = _dram_bytes(record, gpu, blocks, resident) + _spilled_to_dram(record, resources, gpu, here)
    times = {
        "dram": to_ms(dram / (gpu.dram_gbs * DRAM_EFFICIENCY)),
        "l2": _l2_ms(record, gpu),
        "alu": _alu_ms(_slots(record, resources, gpu), programs, here * warps, gpu),
    }
    if record["dot_flops"]:
        product, split = _product_ms(record, resources, gpu, here * warps)
        times["tensor"] = product + split
        alone = times["tensor"] / programs * min(programs, gpu.sms)
        times["latency"] = _dot_latency_ms(record, resources, gpu, blocks, alone, split > 0)
        throughput = norm(2.0, (t for key, t in times.items() if key != "latency"))
        busy = norm(3.0, (throughput, times["latency"]))
    else:
        times["latency"] = _latency_ms(record, gpu, blocks)
        busy = norm(min(6.0, max(1.5, here * warps / 8)), times.values())
    busy = max(busy, to_ms(programs * _DISPATCH_CLOCKS / gpu.clock_ghz))
    bound = max(times, key=lambda key: times[key])
    times["launch"] = gpu.launch_us / 1e3
    occupancy = blocks * warps * gpu.warp_size / gpu.max_threads_per_sm
    return KernelEstimate(name, busy + times["launch"], times, bound, dram, occupancy)


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
    programs is read once by each wave of them, or once in all if all of it fits.
    """
    programs, compulsory = record["programs"], record["unique_read"]
    own = record["program_read"]
    again = max(0.0, record["bytes_read"] - own * programs)
    running = min(programs, blocks * gpu.sms)
    per_wave = _window(record["window_read"], running, own)
    waves = programs / running
    shared = max(0.0, min(per_wave * waves, own * programs) - compulsory)
    missed = again * _miss(own * running, gpu) + shared * _miss(compulsory, gpu)
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
        power = math.log(below[1] / before[1]) / math.log(below[0] / before[0]) if before[0] < below[0] else 1.0
        return below[1] * float((programs / below[0]) ** power)
    if above[0] == below[0]:
        return below[1]
    return below[1] + (above[1] - below[1]) * (programs - below[0]) / (above[0] - below[0])


def _miss(working_set: float, gpu: Hardware) -> float:
    """Share of repeated reads that miss L2, by what is read between: none below CACHED of it, all above 1.6 times."""
    return min(1.0, max(0.0, (working_set / (CACHED * gpu.l2_bytes) - 1.0) / 0.6))


def _l2_ms(record: Record, gpu: Hardware) -> float:
    # Small storages come from the SM's own cache, except into products, whose copies pass it by.
    near = 0.0 if record["dot_flops"] else record["hot_read"]
    sectors = max(0.0, record["sector_read"] - near) + record["sector_written"]
    # Scattered accesses also pay in the SM: each sector is a request of its own.
    scattered = record["sector_read"] > 2 * max(1, record["bytes_read"])
    return to_ms(sectors / gpu.l2_gbs * (2.0 if scattered else 1.0))


def _slots(record: Record, resources: Resources, gpu: Hardware) -> float:
    """Issue slots outside products: counted ones, spills, and narrow copies into shared memory."""
    mix = resources.instruction_mix
    copies = sum(count for opcode, count in mix.items() if opcode.startswith("LDGSTS."))
    narrow = mix.get("LDGSTS.32", 0) / copies if copies else 0.0
    spills = _words_spilled(record, resources, gpu) * _SPILL_SLOTS
    return float(record["alu_ops"] + spills + narrow * record["bytes_read"] / 4 * _NARROW_SLOTS)


def _words_spilled(record: Record, resources: Resources, gpu: Hardware) -> float:
    """Words that all threads store and load once because registers ran out."""
    return 2 * resources.spill_bytes / 4 * record["num_warps"] * gpu.warp_size * float(record["programs"])


def _alu_ms(slots: float, programs: int, warps: int, gpu: Hardware) -> float:
    rate = issue_rate(gpu) * balance(programs, gpu)
    return to_ms(slots / rate / min(1.0, 0.3 + warps / 12))


def _product_ms(record: Record, resources: Resources, gpu: Hardware, warps: int) -> tuple[float, float]:
    """Time of the tile products, and of splitting their operands where the precision asks for it."""
    m, n, k = record["dot_shape"]
    busy = balance(record["programs"], gpu)
    lanes = issue_rate(gpu)
    if record["dot_dtype"] in ("fp32", "fp64") and record["dot_precision"] == "ieee" and gpu.warp_size == 32:
        # On CUDA cores: a thread keeps q = m n / threads sums and loads 2 / sqrt(q) operands for each product.
        sums = max(1.0, m * n / (record["num_warps"] * gpu.warp_size))
        slots = record["dot_flops"] / 2 * (1 + _FMA_OVERHEAD * 2 / math.sqrt(sums))
        return to_ms(slots / lanes / busy * (1 if record["dot_dtype"] == "fp32" else 2)), 0.0
    peak, products = tensor_rate(record["dot_dtype"], record["dot_precision"], gpu)
    kind = _tensor_kind(resources, gpu)
    padded = math.prod(max(1.0, 16 / size) for size in (m, n))
    flops = record["dot_flops"] * products * padded
    issue = 1.0 if kind == "wgmma" else min(1.0, warps / 8)
    product = to_ms(flops / (peak * 1e3) / _TENSOR_EFFICIENCY[kind] / busy / issue)
    slots = 0.0
    if products > 1 and record["dot_dtype"] == "fp32":
        rows, columns = (1, 1) if kind == "wgmma" else _warp_grid(m, n, record["num_warps"])
        elements = record["programs"] * record["dots"] * (m * k * columns + k * n * rows)
        slots += elements * _SPLIT_SLOTS[kind == "wgmma"]
        # The parts live in the loop, and so do their spills; other kernels spill in their epilogue.
        slots += _words_spilled(record, resources, gpu) * _SPILL_SLOTS * record["rounds"] / 2
    stores = resources.instruction_mix.get("STS.32", 0)
    if kind == "wgmma" and stores >= 8:  # a TF32 operand that lies the wrong way round is turned in shared memory
        threads = record["num_warps"] * gpu.warp_size * record["programs"]
        slots += stores * threads * record["rounds"] * _TURN_SLOTS
    return product, to_ms(slots / lanes / busy / issue)


def _warp_grid(m: int, n: int, warps: int) -> tuple[int, int]:
    """How Triton lays warps over a tile of m x n where each warp multiplies 16 x 16 at a time: (rows, columns).

    The warps of a row hold the same left operand, those of a column the same right one.
    """
    rows, columns = 1, 1
    while rows * columns < warps:
        if m / 16 / rows >= n / 16 / columns and rows < m / 16:
            rows *= 2
        else:
            columns *= 2
    return rows, columns


def _tensor_kind(resources: Resources, gpu: Hardware) -> str:
    if gpu.target not in ("sm_90", "sm_100"):
        return "mma"
    mix = resources.instruction_mix
    return "mma on wgmma hardware" if mix.get("HMMA", 0) and not mix.get("HGMMA", 0) else "wgmma"


def _dot_latency_ms(
    record: Record, resources: Resources, gpu: Hardware, blocks: int, alone_ms: float, split: bool
) -> float:
    """Waves of programs x one program's loop of tile products: arithmetic, waiting for it, and loads not yet there.

    Three stages or more hide the loads; with two they come while one product runs, and a part is always waited for;
    with one nothing overlaps.
    """
    rounds = max(1.0, record["rounds"])
    product_ns = alone_ms * 1e6 / rounds
    stages = record["num_stages"]
    exposed = gpu.latency_ns if stages <= 1 else 0.0
    if stages == 2:
        exposed = max(gpu.latency_ns / 4, gpu.latency_ns - product_ns)
    wait = _WGMMA_SYNC_NS if _tensor_kind(resources, gpu) == "wgmma" and not split and stages > 2 else _SYNC_NS
    program_ns = _START_NS + gpu.latency_ns + rounds * (product_ns + wait + exposed)
    return to_ms(_waves(record["programs"], blocks, gpu) * program_ns)


def _latency_ms(record: Record, gpu: Hardware, blocks: int) -> float:
    """Waves of programs x one program's rounds of loads and its own arithmetic."""
    programs, rounds = record["programs"], record["rounds"]
    threads = record["num_warps"] * gpu.warp_size
    loaded = record["bytes_read"] / programs / max(1.0, rounds)
    # A loop with little to load per thread is unrolled, so that several rounds are under way together.
    depth = min(4.0, max(1.0, 16 / max(1.0, loaded / 4 / threads))) if rounds > 4 else 1.0
    instructions = record["alu_ops"] / programs / threads
    program_ns = _START_NS + rounds * (gpu.latency_ns + loaded / _SM_BYTES_NS) / depth
    program_ns += instructions * _DEPENDENT_CLOCKS / (gpu.clock_ghz * ALU_EFFICIENCY)
    return to_ms(_waves(programs, blocks, gpu) * program_ns)


def _waves(programs: int, blocks: int, gpu: Hardware) -> float:
    return max(1.0, programs / (blocks * gpu.sms))


def _spilled_to_dram(record: Record, resources: Resources, gpu: Hardware, here: int) -> float:
    """Bytes of spills that do not stay in L1: stored and loaded once a program."""
    program_bytes = resources.spill_bytes * record["num_warps"] * gpu.warp_size
    return 2.0 * program_bytes * record["programs"] if program_bytes * here > _L1_SPILL_BYTES else 0.0
