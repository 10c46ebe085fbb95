"""An estimated runtime from counted traffic, counted operations, a kernel's resources and the hardware table. Pure.

Each kernel gets the time of every thing it could be waiting for, and these are combined by a p-norm, the sum of t^p to
the power 1/p: p near 1 adds them up (a few warps do one thing after another), a large p takes the longest (many warps
overlap everything).

    dram    bytes that reach DRAM / (peak x DRAM_EFFICIENCY)
    l2      32-byte sectors requested / L2 bandwidth
    alu     issue slots / (lanes x clock x ALU_EFFICIENCY), on the SMs that have work; of a kernel without loops no more than
            its instructions, for what elements have in common is counted for each of them
    spill   words that do not fit registers, through L1 or L2
    latency waves of programs x the time one program takes alone: its rounds of loads and its own arithmetic
    launch  added: a constant per kernel, less inside a CUDA graph

A launch that multiplies tiles has, instead of latency, the turns of its loop as the machine code has them: tensor cores,
instructions, shared memory with its bank conflicts, and loads that are waited for (`loop_time`; `tile_time` where no machine
code was read).

`launch_time` has the formulas of Triton launches, `op_time` those of torch ops, `roofline` what all use. Their
constants were fitted to 127 Triton launches and 62 library calls timed on one H200 (torch 2.11, triton 3.6,
medians of `triton.testing.do_bench`); those of loops, spills and reads that L2 has lost to 298 versions of the 18 built-in
tasks on an H100. Fitted to every second task, these rank the versions of the others with a median Spearman correlation of
0.95 and 0.91 (fitted to all: 0.94). Tests hold a part of these times. Estimates are for ranking versions of one task:
within a factor of 1.5 for most kernels, not for all. A kernel that another triton than the GPU's compiles may take other
registers, and so put another number of programs on an SM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtmc.errors import EvaluatorError
from mtmc.evaluate.estimates.launch_time import estimate_launch
from mtmc.evaluate.estimates.op_time import estimate_op
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import CACHED, GRAPHED_SHARE, KernelEstimate, Record, to_ms
from mtmc.hardware import Hardware, tensor_rate


@dataclass(frozen=True)
class Estimate:
    """Of one forward. metrics: see `estimate`. kernels: one entry a record, in launch order."""

    runtime_ms: float
    metrics: Mapping[str, float]
    kernels: tuple[KernelEstimate, ...]


def estimate(
    records: Sequence[Record],
    resources: Mapping[str, Resources] | Sequence[Resources],
    gpu: Hardware,
    copies: Sequence[Record] | None = None,
) -> Estimate:
    """Estimated runtime and metrics of a forward on a GPU.

    records: of `traffic.count_traffic`, in launch order.
    resources: of the Triton kernels, by name, or one per Triton launch in launch order.
    copies: records of the copies around one CUDA graph of all launches; None where they are launched one by one.

    Metrics: bytes_moved (each kernel's own compulsory bytes, summed), bytes_min (what one perfectly fused kernel would
    move: inputs once, results once), bytes_dram (estimated to reach DRAM), flops, dot_flops, kernels (launches),
    roofline (time of bytes_min and flops at the peaks / runtime, 0 to 1), and of Triton kernels, where there are any:
    registers, spills (bytes a thread), shared_memory (bytes a block), each the largest, occupancy (mean by time), and
    programs (of the launch that takes longest: too few leave multiprocessors idle).

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
    if copies is not None:
        runtime_ms += gpu.launch_us / 1e3 - (1 - GRAPHED_SHARE) * sum(kernel.times["launch"] for kernel in kernels)
        runtime_ms += sum(estimate_op(record, gpu).ms for record in copies)
    metrics = _metrics(records, kernels, used, runtime_ms, gpu)
    for record in copies or ():
        metrics["bytes_moved"] += record["bytes_read"] + record["bytes_written"]
        metrics["kernels"] += 1
    return Estimate(runtime_ms, metrics, tuple(kernels))


def _resources_of(record: Record, resources: Mapping[str, Resources] | Sequence[Resources], at: int) -> Resources:
    if isinstance(resources, Mapping):
        found = resources.get(record["kernel"])
    else:
        found = resources[at] if at < len(resources) else None
    if found is None:
        raise EvaluatorError(f"no resources for launch {at} of kernel {record['kernel']!r}; build it before estimating")
    return found


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
    roof = max(to_ms(least / gpu.dram_gbs), arithmetic)
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
        launches = [(kernel.ms, r) for kernel, r in zip(kernels, records, strict=True) if "op" not in r]
        metrics["programs"] = float(max(launches, key=lambda pair: pair[0])[1]["programs"])
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
    return to_ms(products + max(0, record["flops"] - record["dot_flops"]) / (gpu.fp32_tflops * 1e3))


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
