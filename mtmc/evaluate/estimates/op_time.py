"""The time of one torch op as the vendor's library runs it, from its record and the hardware table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mtmc.evaluate.estimates.roofline import (
    DRAM_EFFICIENCY,
    KernelEstimate,
    Record,
    balance,
    issue_rate,
    norm,
    to_ms,
)
from mtmc.hardware import Hardware
from mtmc.task.recurrent import NAMES as RECURRENT

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
_CONVOLUTION_EFFICIENCY = 0.60  # cuDNN in TF32, besides turning NCHW tensors to channels last and back
_DEPTHWISE_SLOTS = 25.0  # per multiplication
_TILES = ((128, 128, 1.0), (128, 64, 0.8), (64, 64, 0.6), (32, 32, 0.35), (16, 128, 0.35))  # M, N, efficiency
_DEPTH_NS = 25.0  # per step along K of one tile
_STEP_US = 9.0  # of a recurrent layer

Times = dict[str, float]  # milliseconds, by what is waited for


def estimate_op(record: Record, gpu: Hardware, resident: float = 0.0) -> KernelEstimate:
    """Time of one torch op as the vendor's library runs it. resident: bytes of its reads that are still in L2."""
    name = str(record["op"]).partition(".")[2].rstrip("_") or str(record["op"])
    moved = record["bytes_read"] + record["bytes_written"]
    dram = max(0.0, moved - resident) + (_STRIDED_DRAM - 1) * record["strided_read"]
    memory = {"dram": to_ms(dram / (gpu.dram_gbs * DRAM_EFFICIENCY)), "l2": to_ms(moved / gpu.l2_gbs)}
    if name in _PRODUCT_OPS and record["dims"]:
        times, busy = _matrix_product(record, gpu, memory)
    elif name in ("convolution", "_convolution") and record["dims"]:
        times = memory | _convolution_ms(record, gpu)
        busy = sum(t for key, t in times.items() if key != "l2")
    elif name in (*RECURRENT, "mkldnn_rnn_layer"):
        times, busy = _recurrent_layer(record, gpu, memory)
    elif record["dot_flops"]:
        times, busy = _attention(record, gpu, memory)
    else:
        times, busy = _elements(name, record, gpu, memory)
    bound = max(times, key=lambda key: times[key])
    recurrent = "latency" in times and "tensor" in times
    times["launch"] = gpu.launch_us / 1e3 * (1 if recurrent else record["kernels"])
    return KernelEstimate(name, busy + times["launch"], times, bound, dram)


def _matrix_product(record: Record, gpu: Hardware, memory: Times) -> tuple[Times, float]:
    if min(record["dims"][1:3]) == 1:  # a matrix times a vector
        times = memory | {"dram": memory["dram"] * (DRAM_EFFICIENCY / _VECTOR_DRAM_EFFICIENCY)}
        return times, times["dram"]
    times = memory | {"tensor": _library_product_ms(record, gpu)}
    return times, times["dram"] + times["tensor"]


def _recurrent_layer(record: Record, gpu: Hardware, memory: Times) -> tuple[Times, float]:
    times = memory | {
        "tensor": to_ms(record["dot_flops"] / (gpu.fp32_tflops * 1e3) * 2),
        "latency": record["kernels"] * _STEP_US / 1e3,
    }
    return times, times["dram"] + max(times["tensor"], times["latency"])


def _attention(record: Record, gpu: Hardware, memory: Times) -> tuple[Times, float]:
    unit = "fp32" if record["dtype"] == "float32" else "fp16"
    peak = gpu.fp32_tflops if unit == "fp32" else gpu.fp16_tflops
    times = memory | {"tensor": to_ms(record["dot_flops"] / (peak * 1e3 * _ATTENTION_EFFICIENCY[unit]))}
    return times, times["dram"] + times["tensor"]


def _elements(name: str, record: Record, gpu: Hardware, memory: Times) -> tuple[Times, float]:
    """Anything that is not a product: elementwise ops, reductions, softmax, norms."""
    slots = _OP_SLOTS.get(name, _DEFAULT_SLOTS) * record["elements"]
    if "softmax" in name and len(record["dims"]) == 3 and record["dims"][1] <= 1024 and record["dims"][2] == 1:
        slots = _SHORT_SOFTMAX_SLOTS * record["elements"]
    if name == "native_batch_norm":  # 2 kernels where it takes the statistics too
        slots *= record["kernels"]
    times = memory | {
        "alu": to_ms(slots / issue_rate(gpu)),
        "latency": _column_softmax_ms(record["dims"], gpu),
    }
    return times, norm(2.0, times.values())


def _library_product_ms(record: Record, gpu: Hardware) -> float:
    """The best of a few tile sizes, with split-K where there are too few tiles; fp32 outside the tensor cores."""
    batch, m, n, k = record["dims"]
    if not batch * m * n * k:  # a size of 0: nothing is multiplied
        return 0.0
    unit = "fp32" if record["dtype"] in ("float32", "float64") else "fp16"
    peak = (gpu.fp32_tflops if unit == "fp32" else gpu.fp16_tflops) * 1e3 * _LIBRARY_EFFICIENCY[unit]
    if record["dtype"] == "float64":
        peak /= 2
    best = math.inf
    for tile_m, tile_n, efficiency in _TILES:
        tiles = batch * -(-m // tile_m) * -(-n // tile_n)
        splits = min(max(1, gpu.sms // tiles), max(1, k // 512))
        flops = 2.0 * tiles * tile_m * tile_n * k
        time = flops / (peak * efficiency * balance(tiles * splits, gpu))
        best = min(best, max(time, k / splits * _DEPTH_NS))
    return to_ms(best)


def _convolution_ms(record: Record, gpu: Hardware) -> dict[str, float]:
    groups, _, outs, depth, taps = record["dims"]
    if groups > 1 and outs < 8:  # depthwise: on CUDA cores
        slots = record["dot_flops"] / 2 * _DEPTHWISE_SLOTS
        return {"alu": to_ms(slots / issue_rate(gpu))}
    peak = gpu.tf32_tflops if record["dtype"] == "float32" else gpu.fp16_tflops
    padded = max(1.0, 32 / outs) * max(1.0, 16 / depth)
    turned = 0.0 if taps == 1 or record.get("channels_last") else 2.0 * (record["bytes_read"] + record["bytes_written"])
    return {
        "tensor": to_ms(record["dot_flops"] * padded / (peak * 1e3 * _CONVOLUTION_EFFICIENCY)),
        "layout": to_ms(turned / (gpu.dram_gbs * DRAM_EFFICIENCY)),
    }


def _column_softmax_ms(dims: Sequence[int], gpu: Hardware) -> float:
    """A softmax across rows: one thread loops over a column three times, a load at a time."""
    if len(dims) != 3 or dims[2] == 1:
        return 0.0
    rows, length, _ = dims
    return to_ms(3 * length * gpu.latency_ns * 2 / 3 * max(1.0, rows / (gpu.sms * 1024)))
