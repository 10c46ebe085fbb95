"""gains: what an action should change of a version, and by how much it may pay at most. Pure, but for the plan it reads.

    saved_ms = launches saved x launch cost + bytes saved at the rate at which they move now
    best_ms  = max(runtime - saved_ms, floor)

An action that moves the same bytes in as many launches can at best bring a version to the highest of its roofs; one for
the host at best to the device's time. So a bound is no forecast: it says what is in vain.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtmc.action import STOP_KIND, Action
from mtmc.agents.facts.bounds import Bounds
from mtmc.errors import MtmcError
from mtmc.hardware import Hardware

if TYPE_CHECKING:
    from mtmc.protocols import EditRequest, Observation
    from mtmc.rewrite.graph import Graph
    from mtmc.rewrite.plan import Plan, Stage

_log = logging.getLogger(__name__)

HOST = ("host_ms", "call_ms")
"""Metrics of what the host takes: an action for them leaves the device as it is."""
LESS = ("kernels", "bytes_moved")
"""Metrics of work: an action for them leaves some of it out."""
FLOPS = "flops"
"""The metric of an action that computes the same with less arithmetic."""


@dataclass(frozen=True)
class Change:
    """What an action leaves out: launches, and bytes that are read or written. Below 0: it adds them."""

    launches: int
    bytes: int


@dataclass(frozen=True)
class Gain:
    """What an action may pay.

    metrics: that it should change. change: what it leaves out, None where nobody knows. best_ms: of a call, at best.
    times: the runtime over that.
    """

    metrics: tuple[str, ...]
    change: Change | None
    best_ms: float
    times: float


def gain(
    action: Action, found: Bounds, metrics: Mapping[str, float], gpu: Hardware, change: Change | None
) -> Gain | None:
    """What an action may pay at most on a version with these bounds and metrics. None for `STOP`.

    change: as `change_of` finds it.
    """
    from mtmc.optimizations import KINDS

    if action.kind == STOP_KIND:
        return None
    kind = KINDS.get(action.kind)
    names = () if kind is None else kind.changes
    best = max(_best(names, found, metrics, gpu, change), 1e-9)
    return Gain(names, change, min(best, found.runtime_ms), max(1.0, found.runtime_ms / best))


def _best(
    names: tuple[str, ...], found: Bounds, metrics: Mapping[str, float], gpu: Hardware, change: Change | None
) -> float:
    """The least milliseconds of a call after an action for metrics of these names."""
    floor = found.floor_ms or 0.0
    if FLOPS in names:  # the floor is that of the reference's own flops
        floor = min(floor, metrics.get("bytes_min", 0.0) / gpu.dram_gbs / 1e6)
    host_ms = max(0.0, found.runtime_ms - found.device_ms)
    if set(names) == set(HOST):
        return max(floor, found.device_ms if host_ms > 0 else found.runtime_ms - _between(metrics, gpu))
    if names and not set(names) & {*LESS, FLOPS}:
        roof = max((each.ms for each in found.roofs), default=floor)
        return max(floor, host_ms + min(roof, found.device_ms))
    if change is None or not names or FLOPS in names:
        return floor
    return max(floor, found.runtime_ms - _saved(change, host_ms, found, metrics, gpu))


def _saved(change: Change, host_ms: float, found: Bounds, metrics: Mapping[str, float], gpu: Hardware) -> float:
    """Milliseconds that launches and bytes take which are left out."""
    per_launch = gpu.launch_us / 1e3 + (host_ms / metrics["kernels"] if metrics.get("kernels") else 0.0)
    moved = metrics.get("bytes_moved", 0.0)
    at_peak = change.bytes / gpu.dram_gbs / 1e6
    at_present = found.device_ms * change.bytes / moved if moved else at_peak
    return max(0, change.launches) * per_launch + max(0.0, at_peak, at_present)


def _between(metrics: Mapping[str, float], gpu: Hardware) -> float:
    """Milliseconds that the device waits between launches: it goes on by itself where they are one."""
    return max(0.0, metrics.get("kernels", 1.0) - 1) * gpu.launch_us / 1e3


def change_of(asked: EditRequest | Observation, action: Action) -> Change | None:
    """What an action leaves out of a version that has a plan; of another what its sentence tells: None for nothing."""
    if asked.plan is None:
        return None
    from mtmc.optimizations.seen import moves_on
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import graph_of, plan_from_json

    try:
        move = moves_on(asked).get(action.key)
        if move is None or move.child is None:
            return None
        graph = export_graph(asked.task)
        before, after = plan_from_json(asked.plan), move.child
        return _between_plans(graph_of(graph, before), before, graph_of(graph, after), after)
    except (MtmcError, ValueError, KeyError, TypeError) as error:  # the plan of another coder may have any form
        _log.debug("nothing is known of what %s leaves out: %s", action.key, error)
        return None


def _between_plans(graph: Graph, before: Plan, graph_after: Graph, after: Plan) -> Change:
    old_stages, new_stages = _at_each_call(graph, before), _at_each_call(graph_after, after)
    gone = [stage for stage in old_stages if stage not in new_stages]
    come = [stage for stage in new_stages if stage not in old_stages]
    old = [stage_bytes(graph, stage) for stage in gone if launches(graph, stage)]
    new = [stage_bytes(graph_after, stage) for stage in come if launches(graph_after, stage)]
    return Change(len(old) - len(new), sum(old) - sum(new))


def _at_each_call(graph: Graph, plan: Plan) -> list[Stage]:
    """The stages of a plan but those whose results are kept from one call to the next, and calls whose operands kernels all
    write where they are joined."""
    from mtmc.rewrite.joins import joins_of
    from mtmc.rewrite.packing import packed_stages

    kept = packed_stages(graph, plan) if plan.packed else []
    nothing = [(name,) for name, join in joins_of(graph, plan).items() if not join.copied(graph)]
    return [stage for stage in plan.stages if stage not in kept and not (stage.is_torch and stage.ops in nothing)]


def launches(graph: Graph, stage: Stage) -> bool:
    """Whether a stage launches a kernel: a torch call that is a view, or makes numbers that kernels hold, does not."""
    from mtmc.rewrite.operators.table import FREE

    return not (stage.is_torch and graph.by_name[stage.ops[0]].target in FREE)


def stage_bytes(graph: Graph, stage: Stage) -> int:
    """Bytes that a stage reads and writes at the full shapes, each tensor once: what is made and used in it is not there."""
    own = {name for op in stage.ops for name in graph.by_name[op].outputs}
    read = {name for op in stage.ops for name in graph.by_name[op].refs()} - own
    tensors = [graph.values[name] for name in (*read, *graph.leaving(stage.ops)) if name in graph.values]
    return sum(tensor.numel() * ITEM_BYTES.get(tensor.dtype, 4) for tensor in tensors)


ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of one element; of every other dtype 4."""
