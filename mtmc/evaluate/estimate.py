"""An estimated runtime from counted traffic, counted operations, a kernel's resources and the hardware table. Pure.

Each kernel gets the time of every thing it could be waiting for, and these are combined by a p-norm, the sum of t^p to
the power 1/p: p near 1 adds them up (a few warps do one thing after another), a large p takes the longest (many warps
overlap everything).

    dram    bytes that reach DRAM / (peak x DRAM_EFFICIENCY)
    l2      32-byte sectors requested / L2 bandwidth
    alu     issue slots / (lanes x clock x ALU_EFFICIENCY), on the SMs that have work
    tensor  products x flops / (tensor peak x efficiency), on the SMs that have work
    latency waves of programs x the time one program takes alone: its rounds of loads and its own arithmetic
    launch  added: a constant per kernel

The constants were fitted to 127 Triton launches and 62 library calls timed on one H200 (torch 2.11, triton 3.6,
medians of `triton.testing.do_bench`); tests hold a part of these times and some of an H100. Estimates are for ranking
versions of one task: within a factor of 1.5 for most kernels, not for all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.hardware import Hardware
from mtmc.evaluate.resources import Resources

Record = Mapping[str, Any]

DRAM_EFFICIENCY = 0.87
"""Of the peak: streams reach 0.84 to 0.88 of it on H100 and H200."""
ALU_EFFICIENCY = 0.88
"""Sustained clock over boost clock."""
CACHED = 0.42
"""Of L2 that holds data for reuse: each half of it keeps its own copies. Reuse dies out at 1.6 times this size."""


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


@dataclass(frozen=True)
class Estimate:
    """Of one forward. metrics: see `estimate`. kernels: one entry a record, in launch order."""

    runtime_ms: float
    metrics: Mapping[str, float]
    kernels: tuple[KernelEstimate, ...]


def estimate(
    records: Sequence[Record], resources: Mapping[str, Resources] | Sequence[Resources], gpu: Hardware
) -> Estimate:
    """Estimated runtime and metrics of a forward on a GPU.

    records: of `traffic.count_traffic`, in launch order.
    resources: of the Triton kernels, by name, or one per Triton launch in launch order.

    Metrics: bytes_moved (each kernel's own compulsory bytes, summed), bytes_min (what one perfectly fused kernel would
    move: inputs once, results once), bytes_dram (estimated to reach DRAM), flops, dot_flops, kernels (launches),
    roofline (time of bytes_min and flops at the peaks / runtime, 0 to 1), and of Triton kernels, where there are any:
    registers, spills (bytes a thread), shared_memory (bytes a block), each the largest, and occupancy (mean by time).

    Raises: EvaluatorError if a Triton launch has no resources, or does not fit the GPU.
    """
    cache = _Cache(CACHED * gpu.l2_bytes)
    kernels: list[KernelEstimate] = []
    used: list[Resources] = []
    for record in records:
        resident = cache.pass_through(record)
        if "op" in record:
            kernels.append(estimate_op(record, gpu, resident))
        else:
            taken = _resources_of(record, resources, len(used))
            used.append(taken)
            kernels.append(estimate_launch(record, taken, gpu, resident))
    runtime_ms = sum(kernel.ms for kernel in kernels)
    return Estimate(runtime_ms, _metrics(records, kernels, used, runtime_ms, gpu), tuple(kernels))


def _resources_of(record: Record, resources: Mapping[str, Resources] | Sequence[Resources], at: int) -> Resources:
    if isinstance(resources, Mapping):
        found = resources.get(record["kernel"])
    else:
        found = resources[at] if at < len(resources) else None
    if found is None:
        raise EvaluatorError(f"no resources for launch {at} of kernel {record['kernel']!r}; build it before estimating")
    return found


# --- Triton launches -------------------------------------------------------------------------------------------------

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
_PRODUCTS = {"tf32": ("tf32", 1), "tf32x3": ("tf32", 3), "bf16x3": ("fp16", 3), "bf16x6": ("fp16", 6)}


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
    blocks = blocks_per_sm(warps, resources, gpu)
    if blocks == 0:
        raise EvaluatorError(
            f"a program of kernel {name!r} ({warps} warps, {resources.registers} registers a thread, "
            f"{resources.shared_bytes} B of shared memory) does not fit an SM of {gpu.name}; use fewer warps or "
            "stages, or smaller blocks"
        )
    if programs == 0:
        return KernelEstimate(name, gpu.launch_us / 1e3, {"launch": gpu.launch_us / 1e3}, "launch", 0.0, 0.0)
    here = min(blocks, -(-programs // gpu.sms))  # programs that really share an SM
    dram = _dram_bytes(record, gpu, blocks, resident) + _spilled_to_dram(record, resources, gpu, here)
    times = {
        "dram": _ms(dram / (gpu.dram_gbs * DRAM_EFFICIENCY)),
        "l2": _l2_ms(record, gpu),
        "alu": _alu_ms(_slots(record, resources, gpu), programs, here * warps, gpu),
    }
    if record["dot_flops"]:
        product, split = _product_ms(record, resources, gpu, here * warps)
        times["tensor"] = product + split
        alone = times["tensor"] / programs * min(programs, gpu.sms)
        times["latency"] = _dot_latency_ms(record, resources, gpu, blocks, alone, split > 0)
        throughput = _norm(2.0, (t for key, t in times.items() if key != "latency"))
        busy = _norm(3.0, (throughput, times["latency"]))
    else:
        times["latency"] = _latency_ms(record, gpu, blocks)
        busy = _norm(min(6.0, max(1.5, here * warps / 8)), times.values())
    busy = max(busy, _ms(programs * _DISPATCH_CLOCKS / gpu.clock_ghz))
    bound = max(times, key=lambda key: times[key])
    times["launch"] = gpu.launch_us / 1e3
    occupancy = blocks * warps * gpu.warp_size / gpu.max_threads_per_sm
    return KernelEstimate(name, busy + times["launch"], times, bound, dram, occupancy)


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
    return _ms(sectors / gpu.l2_gbs * (2.0 if scattered else 1.0))


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
    rate = gpu.sms * gpu.fp32_lanes * gpu.clock_ghz * ALU_EFFICIENCY * _balance(programs, gpu)
    return _ms(slots / rate / min(1.0, 0.3 + warps / 12))


def _balance(programs: int, gpu: Hardware) -> float:
    """Share of the SMs' time that has work: the last programs leave some of them idle."""
    each = programs / gpu.sms
    return each / math.ceil(each)


def _product_ms(record: Record, resources: Resources, gpu: Hardware, warps: int) -> tuple[float, float]:
    """Time of the tile products, and of splitting their operands where the precision asks for it."""
    m, n, k = record["dot_shape"]
    balance = _balance(record["programs"], gpu)
    lanes = gpu.sms * gpu.fp32_lanes * gpu.clock_ghz * ALU_EFFICIENCY
    if record["dot_dtype"] in ("fp32", "fp64") and record["dot_precision"] == "ieee" and gpu.warp_size == 32:
        # On CUDA cores: a thread keeps q = m n / threads sums and loads 2 / sqrt(q) operands for each product.
        sums = max(1.0, m * n / (record["num_warps"] * gpu.warp_size))
        slots = record["dot_flops"] / 2 * (1 + _FMA_OVERHEAD * 2 / math.sqrt(sums))
        return _ms(slots / lanes / balance * (1 if record["dot_dtype"] == "fp32" else 2)), 0.0
    peak, products = tensor_rate(record["dot_dtype"], record["dot_precision"], gpu)
    kind = _tensor_kind(resources, gpu)
    padded = math.prod(max(1.0, 16 / size) for size in (m, n))
    flops = record["dot_flops"] * products * padded
    issue = 1.0 if kind == "wgmma" else min(1.0, warps / 8)
    product = _ms(flops / (peak * 1e3) / _TENSOR_EFFICIENCY[kind] / balance / issue)
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
    return product, _ms(slots / lanes / balance / issue)


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


def tensor_rate(dtype: str | None, precision: str | None, gpu: Hardware) -> tuple[float, int]:
    """Peak of a product's unit in TFLOP/s, and how many products of that unit make one: ("fp32", "tf32x3") -> 3."""
    if dtype == "fp32":
        unit, products = _PRODUCTS.get(precision or "tf32", ("fp32", 1))
        return {"tf32": gpu.tf32_tflops, "fp16": gpu.fp16_tflops, "fp32": gpu.fp32_tflops}[unit], products
    if dtype == "fp64":
        return gpu.fp32_tflops / 2, 1
    doubled = dtype is not None and (dtype.startswith("fp8") or dtype in ("int8", "uint8"))
    return gpu.fp16_tflops * (2 if doubled else 1), 1


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
    return _ms(_waves(record["programs"], blocks, gpu) * program_ns)


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
    return _ms(_waves(programs, blocks, gpu) * program_ns)


def _waves(programs: int, blocks: int, gpu: Hardware) -> float:
    return max(1.0, programs / (blocks * gpu.sms))


def _spilled_to_dram(record: Record, resources: Resources, gpu: Hardware, here: int) -> float:
    """Bytes of spills that do not stay in L1: stored and loaded once a program."""
    program_bytes = resources.spill_bytes * record["num_warps"] * gpu.warp_size
    return 2.0 * program_bytes * record["programs"] if program_bytes * here > _L1_SPILL_BYTES else 0.0


# --- torch ops -------------------------------------------------------------------------------------------------------

# Issue slots per element of the largest tensor, from library calls timed on an H200 (16384 x 4096 fp32 and alike):
# slots = sqrt(time^2 - dram time^2) x lanes x clock / elements. Ops not named stream at DRAM speed (measured: add,
# relu, gelu, tanh, where, cat, casts).
_DEFAULT_SLOTS = 6.0
_OP_SLOTS: dict[str, float] = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "prod", "any", "all"), 18.0),
    **dict.fromkeys(("max", "min", "argmax", "argmin"), 26.0),
    **dict.fromkeys(("var", "std", "var_mean", "norm", "linalg_vector_norm"), 30.0),
    **dict.fromkeys(("native_layer_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm"), 57.0),
    **dict.fromkeys(("_softmax", "_safe_softmax"), 75.0),
    "_log_softmax": 62.0,
    "native_group_norm": 120.0,
    "logsumexp": 133.0,
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"), 116.0),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"), 80.0),
    **dict.fromkeys(("sort", "topk"), 300.0),
}
_SHORT_SOFTMAX_SLOTS = 20.0  # rows up to 1024 are held in registers
_PRODUCT_OPS = ("mm", "addmm", "bmm", "baddbmm")
_VECTOR_DRAM_EFFICIENCY = 0.6  # a matrix times a vector, fp32
_STRIDED_DRAM = 6.0  # times that a transposed operand crosses DRAM: transposed copies and sums of 8192 x 8192
_LIBRARY_EFFICIENCY = {"fp32": 0.76, "fp16": 0.78}
"""cuBLAS over peak: 50.7 of 66.9 TFLOP/s (fp32), 761 of 989 (fp16), products of 4096 cubed."""
_ATTENTION_EFFICIENCY = {"fp32": 0.50, "fp16": 0.40}
_CONVOLUTION_EFFICIENCY = 0.60  # cuDNN in TF32, besides turning NCHW tensors round and back
_DEPTHWISE_SLOTS = 25.0  # per multiplication
_TILES = ((128, 128, 1.0), (128, 64, 0.8), (64, 64, 0.6), (32, 32, 0.35), (16, 128, 0.35))  # M, N, efficiency
_DEPTH_NS = 25.0  # per step along K of one tile
_STEP_US = 9.0  # of a recurrent layer


def estimate_op(record: Record, gpu: Hardware, resident: float = 0.0) -> KernelEstimate:
    """Time of one torch op as the vendor's library runs it. resident: bytes of its reads that are still in L2."""
    name = str(record["op"]).partition(".")[2].rstrip("_") or str(record["op"])
    moved = record["bytes_read"] + record["bytes_written"]
    dram = max(0.0, moved - resident) + (_STRIDED_DRAM - 1) * record["strided_read"]
    times = {"dram": _ms(dram / (gpu.dram_gbs * DRAM_EFFICIENCY)), "l2": _ms(moved / gpu.l2_gbs)}
    if name in _PRODUCT_OPS and record["dims"] and min(record["dims"][1:3]) == 1:
        times["dram"] *= DRAM_EFFICIENCY / _VECTOR_DRAM_EFFICIENCY
        busy = times["dram"]
    elif name in _PRODUCT_OPS and record["dims"]:
        times["tensor"] = _library_product_ms(record, gpu)
        busy = times["dram"] + times["tensor"]
    elif name in ("convolution", "_convolution") and record["dims"]:
        times.update(_convolution_ms(record, gpu))
        busy = sum(t for key, t in times.items() if key != "l2")
    elif name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn_layer"):
        times["tensor"] = _ms(record["dot_flops"] / (gpu.fp32_tflops * 1e3) * 2)
        times["latency"] = record["kernels"] * _STEP_US / 1e3
        busy = times["dram"] + max(times["tensor"], times["latency"])
    elif record["dot_flops"]:
        unit = "fp32" if record["dtype"] == "float32" else "fp16"
        peak = gpu.fp32_tflops if unit == "fp32" else gpu.fp16_tflops
        times["tensor"] = _ms(record["dot_flops"] / (peak * 1e3 * _ATTENTION_EFFICIENCY[unit]))
        busy = times["dram"] + times["tensor"]
    else:
        slots = _OP_SLOTS.get(name, _DEFAULT_SLOTS) * record["elements"]
        if "softmax" in name and len(record["dims"]) == 3 and record["dims"][1] <= 1024 and record["dims"][2] == 1:
            slots = _SHORT_SOFTMAX_SLOTS * record["elements"]
        if name == "native_batch_norm":  # 2 kernels where it takes the statistics too
            slots *= record["kernels"]
        times["alu"] = _ms(slots / (gpu.sms * gpu.fp32_lanes * gpu.clock_ghz * ALU_EFFICIENCY))
        times["latency"] = _column_softmax_ms(record["dims"], gpu)
        busy = _norm(2.0, times.values())
    bound = max(times, key=lambda key: times[key])
    recurrent = "latency" in times and "tensor" in times
    times["launch"] = gpu.launch_us / 1e3 * (1 if recurrent else record["kernels"])
    return KernelEstimate(name, busy + times["launch"], times, bound, dram)


def _library_product_ms(record: Record, gpu: Hardware) -> float:
    """The best of a few tile sizes, with split-K where there are too few tiles; fp32 outside the tensor cores."""
    batch, m, n, k = record["dims"]
    unit = "fp32" if record["dtype"] in ("float32", "float64") else "fp16"
    peak = (gpu.fp32_tflops if unit == "fp32" else gpu.fp16_tflops) * 1e3 * _LIBRARY_EFFICIENCY[unit]
    if record["dtype"] == "float64":
        peak /= 2
    best = math.inf
    for tile_m, tile_n, efficiency in _TILES:
        tiles = batch * -(-m // tile_m) * -(-n // tile_n)
        splits = min(max(1, gpu.sms // tiles), max(1, k // 512))
        flops = 2.0 * tiles * tile_m * tile_n * k
        time = flops / (peak * efficiency * _balance(tiles * splits, gpu))
        best = min(best, max(time, k / splits * _DEPTH_NS))
    return _ms(best)


def _convolution_ms(record: Record, gpu: Hardware) -> dict[str, float]:
    groups, _, outs, depth, taps = record["dims"]
    if groups > 1 and outs < 8:  # depthwise: on CUDA cores
        slots = record["dot_flops"] / 2 * _DEPTHWISE_SLOTS
        return {"alu": _ms(slots / (gpu.sms * gpu.fp32_lanes * gpu.clock_ghz * ALU_EFFICIENCY))}
    peak = gpu.tf32_tflops if record["dtype"] == "float32" else gpu.fp16_tflops
    padded = max(1.0, 32 / outs) * max(1.0, 16 / depth)
    turned = 0.0 if taps == 1 else 2.0 * (record["bytes_read"] + record["bytes_written"])
    return {
        "tensor": _ms(record["dot_flops"] * padded / (peak * 1e3 * _CONVOLUTION_EFFICIENCY)),
        "layout": _ms(turned / (gpu.dram_gbs * DRAM_EFFICIENCY)),
    }


def _column_softmax_ms(dims: Sequence[int], gpu: Hardware) -> float:
    """A softmax across rows: one thread walks a column three times, a load at a time."""
    if len(dims) != 3 or dims[2] == 1:
        return 0.0
    rows, length, _ = dims
    return _ms(3 * length * gpu.latency_ns * 2 / 3 * max(1.0, rows / (gpu.sms * 1024)))


# --- the whole forward -----------------------------------------------------------------------------------------------


class _Cache:
    """Which storages the last kernels left in L2. The least recently used leave first; one too large evicts all."""

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, float] = OrderedDict()

    def pass_through(self, record: Record) -> float:
        """Bytes of a kernel's reads that are found; afterwards what it read and wrote is held."""
        found = sum(min(size, self._held.get(number, 0.0)) for number, size in record["reads"])
        for number, size in [*record["reads"], *record["writes"]]:
            self._held.pop(number, None)
            if size > self._capacity:
                self._held.clear()
            else:
                self._held[number] = size
            while sum(self._held.values()) > self._capacity:
                self._held.popitem(last=False)
        return float(found)


def minimal_bytes(records: Sequence[Record]) -> int:
    """What one perfectly fused kernel would move: what is read and not written before, and what is written last.

    A storage that is written and read afterwards is an intermediate, and need not exist.
    """
    inputs: dict[int, int] = {}
    results: dict[int, int] = {}
    made: set[int] = set()
    for record in records:
        for number, size in record["reads"]:
            results.pop(number, None)
            if number not in made:
                inputs[number] = max(size, inputs.get(number, 0))
        for number, size in record["writes"]:
            made.add(number)
            results[number] = max(size, results.get(number, 0))
    return sum(inputs.values()) + sum(results.values())


def _metrics(
    records: Sequence[Record], kernels: Sequence[KernelEstimate], used: Sequence[Resources], total: float, gpu: Hardware
) -> dict[str, float]:
    moved = sum(
        r["bytes_read"] + r["bytes_written"] if "op" in r else r["unique_read"] + r["unique_written"] for r in records
    )
    least = minimal_bytes(records)
    arithmetic = sum(_floor_ms(record, gpu) for record in records)
    roof = max(_ms(least / gpu.dram_gbs), arithmetic)
    metrics = {
        "bytes_moved": float(moved),
        "bytes_min": float(least),
        "bytes_dram": sum(kernel.dram_bytes for kernel in kernels),
        "flops": float(sum(r["flops"] for r in records)),
        "dot_flops": float(sum(r["dot_flops"] for r in records)),
        "kernels": float(sum(r.get("kernels", 1) for r in records)),
        "roofline": min(1.0, roof / total) if total else 0.0,
    }
    if used:
        triton = [kernel for kernel in kernels if kernel.occupancy is not None]
        spent = sum(kernel.ms for kernel in triton)
        metrics["registers"] = float(max(r.registers for r in used))
        metrics["spills"] = float(max(r.spill_bytes for r in used))
        metrics["shared_memory"] = float(max(r.shared_bytes for r in used))
        metrics["occupancy"] = sum(kernel.ms * (kernel.occupancy or 0.0) for kernel in triton) / spent
    return metrics


def _floor_ms(record: Record, gpu: Hardware) -> float:
    """Least time for a kernel's flops; fp32 products at the best unit that keeps fp32's accuracy: 3 TF32 products."""
    dtype, precision = record.get("dot_dtype"), record.get("dot_precision")
    if "op" in record:
        convolution = "convolution" in record["op"]
        dtype = "fp32" if record["dtype"] in ("float32", "float64") else "fp16"
        precision = "tf32" if convolution else "ieee"
    if dtype == "fp32" and precision != "tf32":
        peak = max(gpu.fp32_tflops, gpu.tf32_tflops / 3)
    else:
        peak = tensor_rate(dtype, precision, gpu)[0]
    products = record["dot_flops"] / (peak * 1e3)
    return _ms(products + max(0, record["flops"] - record["dot_flops"]) / (gpu.fp32_tflops * 1e3))


def _norm(power: float, times: Iterable[float]) -> float:
    return float(sum(t**power for t in times) ** (1 / power))


def _ms(nanoseconds: float) -> float:
    """GB/s are bytes a nanosecond, GFLOP/s flops a nanosecond: quotients are nanoseconds."""
    return nanoseconds / 1e6
