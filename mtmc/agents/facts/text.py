"""text: the facts of a version and of an action in words, with units: what agents are told instead of a list of metrics.

`version_text` and `action_text` print what `bounds` and `gains` compute, and compute nothing themselves. All coders and
policies that ask a model use them, so that none of them knows less of a version than another.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from mtmc.action import Action
from mtmc.agents.facts.bounds import Bounds, Kernel, Limit, Roof, bounds
from mtmc.agents.facts.gains import Change, Gain, change_of, gain
from mtmc.errors import MtmcError
from mtmc.hardware import Hardware, hardware
from mtmc.outcome import Outcome, kernel_figures
from mtmc.protocols import EditRequest, Observation, RunFacts
from mtmc.task import Task

_log = logging.getLogger(__name__)

KERNELS = 6
"""Kernels of a profile that are told, the longest ones."""
LEAST_SHARE = 0.01
"""Of the device time: a roof below it is not told."""
COMPILED = "torch.compile"
TOLD = ("torch", "triton")
"""Packages whose versions agents are told."""

_LIMITS: Mapping[Limit, str] = {
    "memory": "memory: bytes through DRAM. Fewer bytes help, and arithmetic is free",
    "products": "the units that multiply matrices. Better tiles, pipelining and operands that feed them help",
    "arithmetic": "arithmetic outside of the matrix units. Fewer or cheaper operations help",
    "launches": "launches: the device waits between short kernels. Fewer launches help, and no faster kernel does",
    "host": "the host: calls take longer than the device's work. Fewer or cheaper launches help, and no faster kernel does",
    "registers": "registers: threads spill to local memory. Smaller tiles, more warps or less state help",
    "latency": "latency: no unit is near its peak. More programs, more bytes under way or less waiting help",
    "unknown": "not known",
}


_PROFILERS = {
    "profiled_by_ncu": "by hardware counters (ncu)",
    "profiled_by_proton": "by their times alone (Proton)",
    "profiled_by_lab": "as estimated",
}
_SHARES = {
    "tensor_share": "of the tensor cores' time used",
    "occupancy": "occupancy",
    "l2_hit": "of L2 requests hit",
    "l1_hit": "of L1 requests hit",
}
_MIX = {
    "mix_tensor": "tensor cores",
    "mix_global": "global loads and stores",
    "mix_copies": "asynchronous copies",
    "mix_shared": "shared memory",
    "mix_math": "floating point",
    "mix_integer": "integers and addresses",
}


def version_text(outcome: Outcome, gpu_name: str, task: Task, run: RunFacts) -> str:
    """What limits a version, its roofs, its resources and torch.compile, a line each; its status where it failed.

    Raises: ConfigError where the hardware is not in the table.
    """
    gpu = hardware(gpu_name)
    found = bounds(outcome, gpu, task_dtype(task))
    if found is None:
        return _failed(outcome)
    figures = kernel_figures(outcome.metrics)
    where = ", ".join([gpu.name, *(f"{name} {run.versions[name]}" for name in TOLD if name in run.versions)])
    head = f"{_ms(found.runtime_ms)} a call, {outcome.runtime_kind or 'of unknown kind'}{_parts(outcome)} ({where})."
    lines = [
        head,
        f"Its limit is {_LIMITS[found.limit]}.",
        *(f"- {_roof(roof)}" for roof in found.roofs if roof.share >= LEAST_SHARE),
        *_resources(outcome.metrics, gpu),
        *_floor(found),
        *_compiled(outcome, run.baselines),
        *(_profiler(outcome.metrics) if found.kernels else ()),
        *(f"- {_kernel(kernel, figures.get(kernel.name, {}))}" for kernel in found.kernels[:KERNELS]),
    ]
    return "\n".join(lines)


def action_text(asked: EditRequest | Observation, action: Action) -> str:
    """What an action should change of a version, and what it may pay at most; "" where nothing is known of that.

    Raises: ConfigError where the hardware is not in the table.
    """
    gpu = hardware(asked.hardware)
    found = bounds(asked.outcome, gpu, task_dtype(asked.task))
    if found is None:
        return ""
    bound = gain(action, found, asked.outcome.metrics, gpu, change_of(asked, action))
    return "" if bound is None else _gain(bound, found, asked.outcome.metrics)


def gain_text(asked: EditRequest | Observation, action: Action) -> str:
    """What an action may pay at most, to stand behind its sentence in a list: " (at most 1.3x)"; "" where not known."""
    gpu = hardware(asked.hardware)
    found = bounds(asked.outcome, gpu, task_dtype(asked.task))
    if found is None:
        return ""
    bound = gain(action, found, asked.outcome.metrics, gpu, change_of(asked, action))
    return "" if bound is None else f" (at most {bound.times:.3g}x)"


@lru_cache(maxsize=64)
def task_dtype(task: Task) -> str | None:
    """The dtype that most numbers of a task's floating inputs and weights have; None where it does not export."""
    from mtmc.rewrite.exported import export_graph

    try:
        graph = export_graph(task)
    except MtmcError as error:
        _log.info("nothing is known of the dtype of task %s: %s", task.name, error)
        return None
    sizes: dict[str, int] = {}
    for name in (*graph.inputs, *graph.parameters):
        tensor = graph.values[name]
        if tensor.dtype.startswith(("float", "bfloat")):
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None


def amount(count: float) -> str:
    """A count of bytes or flops to three digits with the prefix of its size: 1.07 G."""
    for prefix in ("", "k", "M", "G"):
        if abs(count) < 999.5:
            return f"{count:.3g} {prefix}"
        count /= 1000
    return f"{count:.3g} T"


def _failed(outcome: Outcome) -> str:
    if outcome.ok:
        return "It is right; its runtime is not known."
    why = "" if outcome.diagnosis is None else f": {outcome.diagnosis.kind} in {outcome.diagnosis.stage}"
    return f"It fails ({outcome.status.replace('_', ' ')}{why})."


def _ms(ms: float) -> str:
    return f"{ms * 1e3:.3g} us" if ms < 0.1 else f"{ms:.3g} ms"


def _parts(outcome: Outcome) -> str:
    """Device and host time where both were measured."""
    device, host = outcome.metrics.get("device_ms"), outcome.metrics.get("host_ms")
    return "" if device is None or host is None else f" (device {_ms(device)}, host {_ms(host)})"


def _roof(roof: Roof) -> str:
    share = f"{100 * roof.share:.0f}% of the device time"
    if roof.name == "memory":
        over = ", more than DRAM gives: a part comes from the L2 cache" if roof.share > 1 else ""
        return f"memory: {amount(roof.amount)}B at {roof.rate:,.0f} GB/s take {_ms(roof.ms)} at least, {share}{over}"
    if roof.name == "launches":
        count = f"{roof.amount:.0f} launch{'es' if roof.amount != 1 else ''}"
        return f"launches: {count} at {roof.rate:g} us take {_ms(roof.ms)}, {share}"
    what = roof.unit if roof.name == "products" else "other arithmetic in fp32"
    plain = (
        f"; plain fp32 ones would take {100 * roof.plain:.0f}%" if 0 < roof.plain <= 1 < roof.plain / roof.share else ""
    )
    return (
        f"{roof.name}: {amount(roof.amount)}FLOP at {roof.rate:.3g} TFLOP/s ({what}) take {_ms(roof.ms)} at least, "
        f"{share}{plain}"
    )


def _resources(metrics: Mapping[str, float], gpu: Hardware) -> list[str]:
    """What the kernels take of a multiprocessor."""
    words = []
    if "registers" in metrics:
        words.append(f"{metrics['registers']:.0f} registers a thread")
    if "spills" in metrics:
        words.append(f"{metrics['spills']:.0f} bytes spilled" if metrics["spills"] else "nothing spilled")
    if "shared_memory" in metrics:
        most = gpu.shared_per_block / 1024
        words.append(f"{metrics['shared_memory'] / 1024:.0f} of {most:.0f} KiB of shared memory a program")
    if "occupancy" in metrics:
        words.append(f"{100 * metrics['occupancy']:.0f}% of the threads that a multiprocessor can hold")
    if "programs" in metrics:
        words.append(f"{metrics['programs']:,.0f} programs for {gpu.sms} multiprocessors")
    return [f"- Triton kernels (the largest figures): {', '.join(words)}"] if words else []


def _floor(found: Bounds) -> list[str]:
    if not found.floor_ms:
        return []
    left = found.runtime_ms / found.floor_ms
    return [
        f"- the task's inputs, outputs and products alone take {_ms(found.floor_ms)}: {left:.3g} times faster than this"
    ]


def _compiled(outcome: Outcome, baselines: Mapping[str, Outcome]) -> list[str]:
    times = {name: each.runtime_ms for name, each in baselines.items() if name.startswith(COMPILED) and each.runtime_ms}
    if not times or not outcome.runtime_ms:
        return []
    name = min(times, key=lambda each: times[each] or 0.0)
    ms = times[name]
    assert ms is not None
    kind = baselines[name].runtime_kind or "of unknown kind"
    return [f"- {name} takes {_ms(ms)} ({kind}), {ms / outcome.runtime_ms:.3g} times what this version takes"]


def _kernel(kernel: Kernel, figures: Mapping[str, float]) -> str:
    """A kernel of a profile: its time, what limits it, its nearest roof, and what the profiler saw of it."""
    roof = kernel.roofs[0] if kernel.roofs else None
    words = [f"limited by {kernel.limit}"] if kernel.limit != "unknown" else []
    words += [f"{100 * roof.share:.0f}% of its {roof.name} roof"] if roof is not None else []
    words += [f"{100 * figures[name]:.0f}% {what}" for name, what in _SHARES.items() if name in figures]
    if figures.get("unique_read") and figures.get("bytes_read", 0.0) > figures["unique_read"] * 1.05:
        words.append(f"reads each byte {figures['bytes_read'] / figures['unique_read']:.3g} times")
    words += [f"{figures['spills']:.0f} bytes spilled"] if figures.get("spills") else []
    mix = [
        f"{100 * share:.0f}% {what}" for name, what in _MIX.items() if (share := figures.get(name, 0.0)) >= LEAST_SHARE
    ]
    words += [f"instructions: {', '.join(mix)}"] if mix else []
    count = figures.get("launches", 1.0)
    times = f" in {count:.0f} launches" if count > 1 else ""
    return f"kernel {kernel.name}: {_ms(kernel.ms)}{times}; {'; '.join(words)}"


def _profiler(metrics: Mapping[str, float]) -> list[str]:
    """Who told of the kernels, and whether counters were refused."""
    by = next((told for name, told in _PROFILERS.items() if metrics.get(name)), None)
    refused = " Hardware counters were refused (ERR_NVGPUCTRPERM)." if metrics.get("counters_refused") else ""
    return [] if by is None else [f"Kernels, {by}:{refused}"]


def _gain(bound: Gain, found: Bounds, metrics: Mapping[str, float]) -> str:
    words = []
    if bound.metrics:
        words.append(f"It should change {' and '.join(_changed(bound, name, metrics) for name in bound.metrics)}.")
    words.append(
        f"At best a call then takes {_ms(bound.best_ms)} instead of {_ms(found.runtime_ms)}, "
        f"{bound.times:.3g}x by the roofs."
    )
    return " ".join(words)


def _changed(bound: Gain, name: str, metrics: Mapping[str, float]) -> str:
    """A metric, with what it is and what it becomes where the plan tells that."""
    change, now = bound.change or Change(0, 0), metrics.get(name)
    less = {"kernels": change.launches, "bytes_moved": change.bytes}.get(name, 0)
    if now is None or not less:
        return name
    if name == "kernels":
        return f"kernels ({now:.0f} to {now - less:.0f} launches)"
    return f"{name} ({amount(now)}B, {amount(abs(less))}B {'less' if less > 0 else 'more'})"
