"""The hardware table: what the estimator knows of each GPU, with the document each figure comes from.

Sizes are bytes, bandwidths GB/s (1e9), rates TFLOP/s (1e12) of dense, not sparse, products. Three kinds of figures:

- datasheet figures (SMs, DRAM, rates, capacities), from the documents that `Hardware.source` names;
- limits per SM, from the compute capability table of the CUDA C++ Programming Guide (for MI300X: the CDNA 3 ISA guide
  and white paper);
- `l2_gbs`, `launch_us` and `latency_ns`, which no datasheet states. For H100 and H200 they come from timing kernels on
  an H200 (see `estimate.py`); for the others they are scaled as `source` says. They are the softest figures here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mtmc.errors import ConfigError


@dataclass(frozen=True)
class Hardware:
    """One GPU. What AMD calls compute unit, LDS and wavefront is here called SM, shared memory and warp.

    name: as in `HARDWARE`. target: what Triton compiles for, e.g. "sm_90" or "gfx942".
    sms: enabled multiprocessors. clock_ghz: boost clock. fp32_lanes: fp32 operations an SM issues per clock.
    dram_gbs: peak DRAM bandwidth. l2_bytes, l2_gbs: the last cache that all SMs share, and what it delivers to them.
    fp32_tflops: fp32 outside the tensor cores. tf32_tflops, fp16_tflops: dense tensor core rates (bf16 = fp16).
    shared_per_block, shared_per_sm: most shared memory of one block, and of all blocks of an SM together.
    registers_per_sm: 32-bit registers. max_threads_per_sm, max_blocks_per_sm: residency limits.
    launch_us: what each kernel of a stream costs besides its work. latency_ns: of a DRAM load under load.
    source: documents of the figures.
    """

    name: str
    target: str
    sms: int
    clock_ghz: float
    fp32_lanes: int
    dram_gbs: float
    l2_bytes: int
    l2_gbs: float
    fp32_tflops: float
    tf32_tflops: float
    fp16_tflops: float
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    warp_size: int
    launch_us: float
    latency_ns: float
    source: str


_KIB = 1024
_MIB = 1024 * 1024

_A100 = Hardware(
    name="A100",
    target="sm_80",
    sms=108,
    clock_ghz=1.41,
    fp32_lanes=64,
    dram_gbs=2039.0,
    l2_bytes=40 * _MIB,
    l2_gbs=6500.0,  # 5120 B per clock (white paper) at 1.41 GHz is 7219; 0.9 of it, as on the H200
    fp32_tflops=19.5,
    tf32_tflops=156.0,
    fp16_tflops=312.0,
    shared_per_block=163 * _KIB,
    shared_per_sm=164 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    launch_us=4.0,
    latency_ns=650.0,
    source="NVIDIA A100 80GB SXM datasheet; NVIDIA A100 Tensor Core GPU Architecture white paper v1.0; CUDA C++ "
    "Programming Guide, compute capability 8.0. L2 rate, launch and latency scaled from the H200.",
)

_H100 = Hardware(
    name="H100",
    target="sm_90",
    sms=132,
    clock_ghz=1.98,
    fp32_lanes=128,
    dram_gbs=3350.0,
    l2_bytes=50 * _MIB,
    l2_gbs=10200.0,  # matmul kernels with small tiles reach 9.9 to 10.4 TB/s on an H200, the same chip
    fp32_tflops=66.9,
    tf32_tflops=494.7,  # 989.4 with sparsity
    fp16_tflops=989.4,
    shared_per_block=227 * _KIB,
    shared_per_sm=228 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    launch_us=3.5,
    latency_ns=600.0,
    source="NVIDIA H100 SXM5 datasheet; NVIDIA H100 Tensor Core GPU Architecture white paper v1.04; CUDA C++ "
    "Programming Guide, compute capability 9.0. L2 rate, launch and latency from kernels timed on an H200.",
)

_H200 = Hardware(
    name="H200",
    target="sm_90",
    sms=132,
    clock_ghz=1.98,
    fp32_lanes=128,
    dram_gbs=4800.0,
    l2_bytes=60 * _MIB,  # the device property of an H200; its datasheet is silent
    l2_gbs=10200.0,
    fp32_tflops=66.9,
    tf32_tflops=494.7,
    fp16_tflops=989.4,
    shared_per_block=227 * _KIB,
    shared_per_sm=228 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    launch_us=3.5,
    latency_ns=600.0,
    source="NVIDIA H200 SXM datasheet; device properties of an H200; CUDA C++ Programming Guide, compute capability "
    "9.0. L2 rate, launch and latency from kernels timed on an H200.",
)

_B200 = Hardware(
    name="B200",
    target="sm_100",
    sms=148,
    clock_ghz=1.965,
    fp32_lanes=128,
    dram_gbs=8000.0,
    l2_bytes=126 * _MIB,
    l2_gbs=11400.0,  # the H200's per SM
    fp32_tflops=75.0,  # 600 per 8 GPUs
    tf32_tflops=1125.0,  # 18 PFLOP/s with sparsity per 8 GPUs
    fp16_tflops=2250.0,  # 36 PFLOP/s with sparsity per 8 GPUs
    shared_per_block=227 * _KIB,
    shared_per_sm=228 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    launch_us=3.5,
    latency_ns=700.0,
    source="NVIDIA HGX B200 datasheet (8 GPUs, divided by 8); NVIDIA Blackwell Tuning Guide; CUDA C++ Programming "
    "Guide, compute capability 10.0. L2 rate, launch and latency scaled from the H200.",
)

_MI300X = Hardware(
    name="MI300X",
    target="gfx942",
    sms=304,
    clock_ghz=2.1,
    fp32_lanes=64,
    dram_gbs=5300.0,
    l2_bytes=256 * _MIB,  # the Infinity Cache: the L2 (8 x 4 MB) is private to each compute die
    l2_gbs=14600.0,  # 17.2 TB/s peak of the Infinity Cache, 0.85 of it
    fp32_tflops=163.4,
    tf32_tflops=653.7,
    fp16_tflops=1307.4,
    shared_per_block=64 * _KIB,
    shared_per_sm=64 * _KIB,
    registers_per_sm=131072,  # 4 SIMDs x 512 vector registers x 64 lanes
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=64,
    launch_us=6.0,
    latency_ns=800.0,
    source="AMD Instinct MI300X datasheet; AMD CDNA 3 Architecture white paper; AMD Instinct MI300 ISA reference "
    "guide. Launch and latency are rough: no such card was timed for this table.",
)

_L4 = Hardware(
    name="L4",
    target="sm_89",
    sms=58,
    clock_ghz=2.04,
    fp32_lanes=128,
    dram_gbs=300.0,
    l2_bytes=48 * _MIB,
    l2_gbs=1900.0,  # the RTX 4090's, by SMs and clock
    fp32_tflops=30.3,
    tf32_tflops=60.0,  # 120 with sparsity
    fp16_tflops=121.0,  # 242 with sparsity
    shared_per_block=99 * _KIB,
    shared_per_sm=100 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=1536,
    max_blocks_per_sm=24,
    warp_size=32,
    launch_us=3.5,
    latency_ns=600.0,
    source="NVIDIA L4 datasheet; NVIDIA Ada GPU Architecture white paper; CUDA C++ Programming Guide, compute "
    "capability 8.9. L2 rate, launch and latency scaled.",
)

_RTX4090 = Hardware(
    name="RTX4090",
    target="sm_89",
    sms=128,
    clock_ghz=2.52,
    fp32_lanes=128,
    dram_gbs=1008.0,
    l2_bytes=72 * _MIB,
    l2_gbs=5000.0,  # Chips and Cheese, "Microbenchmarking Nvidia's RTX 4090", 2022: about 5 TB/s
    fp32_tflops=82.6,
    tf32_tflops=82.6,
    fp16_tflops=165.2,  # with fp32 accumulation, as Triton asks for
    shared_per_block=99 * _KIB,
    shared_per_sm=100 * _KIB,
    registers_per_sm=65536,
    max_threads_per_sm=1536,
    max_blocks_per_sm=24,
    warp_size=32,
    launch_us=3.5,
    latency_ns=600.0,
    source="NVIDIA Ada GPU Architecture white paper v2.1, table of GeForce RTX 4090; CUDA C++ Programming Guide, "
    "compute capability 8.9; Chips and Cheese, 'Microbenchmarking Nvidia's RTX 4090' (L2). Launch and latency scaled.",
)

HARDWARE: dict[str, Hardware] = {gpu.name: gpu for gpu in (_A100, _H100, _H200, _B200, _MI300X, _L4, _RTX4090)}
"""Every GPU by name."""

_PRODUCTS = {"tf32": ("tf32", 1), "tf32x3": ("tf32", 3), "bf16x3": ("fp16", 3), "bf16x6": ("fp16", 6)}
_DEFAULT_FOR_TARGET = {"sm_80": "A100", "sm_89": "L4", "sm_90": "H100", "sm_100": "B200", "gfx942": "MI300X"}


def hardware(name: str) -> Hardware:
    """The GPU of that name; upper and lower case are the same.

    Raises: ConfigError naming the value and the nearest names there are.
    """
    by_lower = {known.lower(): gpu for known, gpu in HARDWARE.items()}
    found = by_lower.get(name.lower())
    if found is None:
        raise ConfigError(_unknown("GPU", name, list(HARDWARE)))
    return found


def for_target(target: str) -> Hardware:
    """The GPU that runtimes are for where only the compile target is given, e.g. "sm_90" -> H100.

    Raises: ConfigError naming the value and the nearest targets there are.
    """
    name = _DEFAULT_FOR_TARGET.get(target)
    if name is None:
        raise ConfigError(_unknown("target", target, list(_DEFAULT_FOR_TARGET)))
    return HARDWARE[name]


def tensor_rate(dtype: str | None, precision: str | None, gpu: Hardware) -> tuple[float, int]:
    """Peak of a product's unit in TFLOP/s, and how many products of that unit make one: ("fp32", "tf32x3") -> 3."""
    if dtype == "fp32":
        unit, products = _PRODUCTS.get(precision or "tf32", ("fp32", 1))
        return {"tf32": gpu.tf32_tflops, "fp16": gpu.fp16_tflops, "fp32": gpu.fp32_tflops}[unit], products
    if dtype == "fp64":
        return gpu.fp32_tflops / 2, 1
    doubled = dtype is not None and (dtype.startswith("fp8") or dtype in ("int8", "uint8"))
    return gpu.fp16_tflops * (2 if doubled else 1), 1


def _unknown(what: str, value: str, known: list[str]) -> str:
    lower = {entry.lower(): entry for entry in known}
    near = [lower[match] for match in difflib.get_close_matches(value.lower(), list(lower), n=3, cutoff=0.4)]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {what} {value!r}: {hint}the table has {', '.join(known)}"
