"""bounds: what a version is limited by, and how far it is from each roof. Pure arithmetic on an outcome's metrics.

A roof is the least time that one thing can take at the GPU's peak:

    memory      bytes that reach DRAM / peak of DRAM
    products    flops of matrix products / peak of the unit that computes them as exactly as the task asks
    arithmetic  other flops / peak of fp32
    launches    launches of a forward x what each costs a stream besides its work

Its share is that time over the device time. What a lab estimates and what a GPU measures have different metrics; what is
not known is left out, and a roof that nothing is known of is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mtmc.evaluate.estimates.host_time import launch_bound
from mtmc.hardware import Hardware, tensor_rate
from mtmc.outcome import Outcome, kernel_figures

Limit = Literal["memory", "products", "arithmetic", "launches", "host", "registers", "latency", "unknown"]

AT_ROOF = 0.6
"""Share from which on a roof is what a version is limited by: what streams and tiles reach is 0.5 to 0.9 of the peaks."""
LAUNCHED = 0.3
"""Share of launches from which on they are the limit, where no roof is reached: no other edit saves as much."""
FEW_THREADS = 0.25
"""Occupancy below which loads of DRAM do not hide each other."""

_SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Roof:
    """One roof. ms: the least time, in milliseconds. share: of the device time. amount: bytes, flops or launches.

    rate: the peak, in GB/s, TFLOP/s or microseconds a launch. unit: what computes products, "" for the other roofs.
    plain: of fp32 products the share that they take at least where they are plain ones, else 0.
    """

    name: Literal["memory", "products", "arithmetic", "launches"]
    ms: float
    share: float
    amount: float
    rate: float
    unit: str = ""
    plain: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether it is what limits a version: that some unit is as busy as streams and tiles ever make it."""
        return self.share >= AT_ROOF or AT_ROOF <= self.plain <= 1.0


@dataclass(frozen=True)
class Kernel:
    """What a profile tells of one kernel. ms: its time a forward. roofs: its own. limit: of it alone."""

    name: str
    ms: float
    roofs: tuple[Roof, ...]
    limit: Limit


@dataclass(frozen=True)
class Bounds:
    """What limits a version.

    runtime_ms: of a call; device_ms: of it on the device alone (the same where that is not known apart). limit: the first
    thing to change. roofs: the longest first. floor_ms: what no version of the task goes below by its bytes and products,
    None where that is not known. kernels: the longest first, of a version that was profiled.
    """

    runtime_ms: float
    device_ms: float
    limit: Limit
    roofs: tuple[Roof, ...]
    floor_ms: float | None
    kernels: tuple[Kernel, ...] = ()

    def roof(self, name: str) -> Roof | None:
        """The roof of a name."""
        return next((each for each in self.roofs if each.name == name), None)


def bounds(outcome: Outcome, gpu: Hardware, dtype: str | None) -> Bounds | None:
    """What limits a version that is right; None for any other.

    dtype: of the task's numbers, "float32" say, by which products have their peak; None leaves that roof out.
    """
    if not outcome.ok or not outcome.runtime_ms:
        return None
    metrics = outcome.metrics
    device_ms = metrics.get("device_ms") or outcome.runtime_ms
    roofs = _roofs(metrics, device_ms, gpu, dtype)
    waits = launch_bound(metrics.get("device_ms"), metrics.get("call_ms"))
    host = waits and outcome.runtime_ms > device_ms
    limit: Limit = "host" if host else limit_of(roofs, metrics, gpu)
    kernels = _kernels(metrics, gpu, dtype)
    return Bounds(outcome.runtime_ms, device_ms, limit, roofs, _floor(outcome), kernels)


def limit_of(roofs: tuple[Roof, ...], metrics: Mapping[str, float], gpu: Hardware) -> Limit:
    """What limits device time: the highest roof where it is reached, else what keeps a version from all of them."""
    reached = next((roof.name for roof in roofs if roof.reached), None)
    if reached is not None:
        return reached
    if any(roof.name == "launches" and roof.share >= LAUNCHED for roof in roofs):
        return "launches"
    if metrics.get("spills", 0.0) > 0:
        return "registers"
    if metrics.get("programs", gpu.sms) < gpu.sms or metrics.get("occupancy", 1.0) < FEW_THREADS:
        return "latency"
    return roofs[0].name if roofs and roofs[0].share >= AT_ROOF / 2 else "latency" if roofs else "unknown"


def product_peak(dtype: str, gpu: Hardware) -> tuple[float, str]:
    """The peak of products that are as exact as a dtype, in TFLOP/s, and what computes them.

    Products of fp32 are as exact in three products of TF32, where there are such.
    """
    short = _SHORT.get(dtype, dtype)
    if short != "fp32":
        return tensor_rate(short, None, gpu)[0], f"{short} products"
    thirds = gpu.tf32_tflops / 3 if gpu.target.startswith("sm_") else 0.0
    if thirds > gpu.fp32_tflops:
        return thirds, "fp32 products as three of TF32"
    return gpu.fp32_tflops, "fp32 products"


def _roofs(metrics: Mapping[str, float], device_ms: float, gpu: Hardware, dtype: str | None) -> tuple[Roof, ...]:
    found = []
    moved = metrics.get("bytes_dram", metrics.get("bytes_moved", metrics.get("bytes_min")))
    if moved:
        found.append(_roof("memory", moved, gpu.dram_gbs, moved / gpu.dram_gbs / 1e6, device_ms))
    products = metrics.get("dot_flops", 0.0)
    if products and dtype is not None:
        found.append(_products(products, device_ms, gpu, dtype))
    other = metrics["flops"] - products if "flops" in metrics else 0.0
    if other > 0:
        ms = other / gpu.fp32_tflops / 1e9
        found.append(_roof("arithmetic", other, gpu.fp32_tflops, ms, device_ms))
    launches = metrics.get("kernels", 0.0)
    if launches:
        found.append(_roof("launches", launches, gpu.launch_us, launches * gpu.launch_us / 1e3, device_ms))
    return tuple(sorted(found, key=lambda roof: -roof.ms))


def _products(flops: float, device_ms: float, gpu: Hardware, dtype: str) -> Roof:
    """The roof of products: at the rate of TF32 where fp32 ones take less time than they could as exact ones."""
    rate, unit = product_peak(dtype, gpu)
    if dtype == "float32" and flops / rate / 1e9 > device_ms:
        rate, unit = gpu.tf32_tflops, "TF32 products"
    plain = flops / gpu.fp32_tflops / 1e9 / device_ms if dtype == "float32" else 0.0
    return replace(_roof("products", flops, rate, flops / rate / 1e9, device_ms, unit), plain=plain)


def _roof(
    name: Literal["memory", "products", "arithmetic", "launches"],
    amount: float,
    rate: float,
    ms: float,
    device_ms: float,
    unit: str = "",
) -> Roof:
    return Roof(name, ms, ms / device_ms, amount, rate, unit)


def _floor(outcome: Outcome) -> float | None:
    """`roofline` is the share of the runtime that bytes and products of the task take at least."""
    reached = outcome.metrics.get("roofline")
    return None if reached is None or outcome.runtime_ms is None else reached * outcome.runtime_ms


def _kernels(metrics: Mapping[str, float], gpu: Hardware, dtype: str | None) -> tuple[Kernel, ...]:
    found = []
    for name, own in kernel_figures(metrics).items():
        ms = own.get("ms", 0.0)
        if ms > 0:
            roofs = _roofs(own, ms, gpu, dtype)
            found.append(Kernel(name, ms, roofs, limit_of(roofs, own, gpu)))
    return tuple(sorted(found, key=lambda kernel: -kernel.ms))
