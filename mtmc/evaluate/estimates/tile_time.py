"""The time of a launch that multiplies tiles, from the tile alone: where its machine code says nothing of a loop.

So it is for AMD's GPUs, and for one product without a loop. Fitted with `launch_time`.
"""

from __future__ import annotations

import math

from mtmc.evaluate.estimates.loop_time import on_cuda_cores
from mtmc.evaluate.estimates.occupancy import START_NS, waves
from mtmc.evaluate.estimates.resources import Resources, tensor_kind
from mtmc.evaluate.estimates.roofline import Record, balance, issue_rate, to_ms
from mtmc.hardware import Hardware, tensor_rate

_SYNC_NS, _WGMMA_SYNC_NS = 300.0, 50.0  # of a tile product: barriers and waiting; less where products are asynchronous
_TENSOR_EFFICIENCY = {"wgmma": 0.80, "mma": 0.70, "mma on wgmma hardware": 0.55}
_SPLIT_SLOTS = {True: 12.0, False: 9.5}  # per operand element split in parts; with wgmma they go to shared memory
_TURN_SLOTS = 22.0  # per thread and 4-byte store to shared memory of a transposed operand
_FMA_OVERHEAD = 9.0  # shared memory loads of a product on CUDA cores: slots = flops / 2 x (1 + this x loads a product)
_SPILL_SLOTS = 8.0  # per word stored or loaded


def product_ms(record: Record, resources: Resources, gpu: Hardware, warps: int) -> tuple[float, float]:
    """Time of the tile products, and of splitting their operands where the precision asks for it."""
    m, n, k = record["dot_shape"]
    busy = balance(record["programs"], gpu)
    lanes = issue_rate(gpu)
    if on_cuda_cores(record, gpu):
        # On CUDA cores: a thread keeps q = m n / threads sums and loads 2 / sqrt(q) operands for each product.
        sums = max(1.0, m * n / (record["num_warps"] * gpu.warp_size))
        slots = record["dot_flops"] / 2 * (1 + _FMA_OVERHEAD * 2 / math.sqrt(sums))
        return to_ms(slots / lanes / busy * (1 if record["dot_dtype"] == "fp32" else 2)), 0.0
    peak, products = tensor_rate(record["dot_dtype"], record["dot_precision"], gpu)
    kind = tensor_kind(resources, gpu)
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
        slots += _spilled(record, resources, gpu) * _SPILL_SLOTS * record["rounds"] / 2
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


def dot_latency_ms(
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
    wait = _WGMMA_SYNC_NS if tensor_kind(resources, gpu) == "wgmma" and not split and stages > 2 else _SYNC_NS
    program_ns = START_NS + gpu.latency_ns + rounds * (product_ns + wait + exposed)
    return to_ms(waves(record["programs"], blocks, gpu) * program_ns)


def _spilled(record: Record, resources: Resources, gpu: Hardware) -> float:
    return 2.0 * resources.spill_bytes / 4 * record["num_warps"] * gpu.warp_size * float(record["programs"])
