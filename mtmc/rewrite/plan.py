"""Plan: how a kernel version is made, an ordered list of stages over the captured graph.

A stage is one torch call, or one kernel of a family that covers several ops, with its schedule. A plan is plain data: it
is kept with the node as JSON, and the source is printed from it again at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtmc.rewrite.graph import Graph

TORCH = "torch"
Setting = int | str


@dataclass(frozen=True)
class Stage:
    """One step of forward.

    ops: names of the ops of the graph it covers, in graph order. family: `TORCH` for a torch call (exactly one op).
    schedule: the family's settings by name (block sizes, warps, stages, order, precision, splits), sorted.
    """

    ops: tuple[str, ...]
    family: str = TORCH
    schedule: tuple[tuple[str, Setting], ...] = ()

    @property
    def is_torch(self) -> bool:
        """Whether it is a torch call."""
        return self.family == TORCH

    @property
    def name(self) -> str:
        """Short name: the ops that do work, e.g. "linear_gelu"."""
        names = self.ops if len(self.ops) <= 3 else (*self.ops[:2], self.ops[-1])
        return "_".join(names)

    def setting(self, name: str) -> Setting:
        """One setting of the schedule. Raises: KeyError."""
        return dict(self.schedule)[name]

    def number(self, name: str) -> int:
        """One setting of the schedule that is a whole number. Raises: KeyError, ValueError."""
        return int(self.setting(name))

    def scheduled(self, changes: Mapping[str, Setting]) -> Stage:
        """The same stage with some settings changed."""
        return Stage(self.ops, self.family, tuple(sorted({**dict(self.schedule), **changes}.items())))


@dataclass(frozen=True)
class Plan:
    """Stages in the order in which they run."""

    stages: tuple[Stage, ...]

    def stage_of(self, op: str) -> Stage:
        """The stage that covers an op. Raises: KeyError."""
        for stage in self.stages:
            if op in stage.ops:
                return stage
        raise KeyError(op)

    def with_stage(self, old: Stage, new: Stage) -> Plan:
        """The plan with one stage replaced."""
        return Plan(tuple(new if stage == old else stage for stage in self.stages))

    def with_merged(self, graph: Graph, parts: Sequence[Stage], merged: Stage) -> Plan:
        """The plan with some stages replaced by one that covers them all, in an order that the dataflow allows."""
        rest = [stage for stage in self.stages if stage not in parts]
        return Plan(tuple(in_order(graph, [*rest, merged])))

    def to_json(self) -> str:
        """Canonical JSON text."""
        stages = [{"ops": stage.ops, "family": stage.family, "schedule": dict(stage.schedule)} for stage in self.stages]
        return json.dumps(stages, sort_keys=True, separators=(",", ":"))


def plan_from_json(text: str) -> Plan:
    """Inverse of `Plan.to_json`. Raises: KeyError, ValueError on text of another form."""
    return Plan(
        tuple(
            Stage(tuple(item["ops"]), item["family"], tuple(sorted(item["schedule"].items())))
            for item in json.loads(text)
        )
    )


def root_plan(graph: Graph) -> Plan:
    """The plan of the reference: every op a torch call."""
    return Plan(tuple(Stage((op.name,)) for op in graph.ops))


def merged_ops(graph: Graph, parts: Sequence[Stage]) -> tuple[str, ...]:
    """The ops of several stages, in graph order."""
    covered = {name for stage in parts for name in stage.ops}
    return tuple(op.name for op in graph.ops if op.name in covered)


def feeds(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether `second` reads a value that `first` makes."""
    made = {out for name in first.ops for out in graph.by_name[name].outputs}
    return any(ref in made for name in second.ops for ref in graph.by_name[name].refs())


def fusible(graph: Graph, plan: Plan, first: Stage, second: Stage, free: Sequence[Stage]) -> list[Stage] | None:
    """The stages that become one if `first` and `second` do, or None where they cannot.

    They are `first`, `second` and those of the `free` stages (views) that stand between them. `first` must feed `second`,
    straight or through such views, or both read a value that neither makes; no other way may lead from one to the other.
    """
    if feeds(graph, second, first):
        return None
    between = [] if feeds(graph, first, second) else _views_between(graph, plan, first, second, free)
    if not between and not feeds(graph, first, second) and not _siblings(graph, first, second):
        return None
    parts = [first, *between, second]
    inside = any(_detour(graph, plan, one, other, parts) for one in parts for other in parts if one != other)
    return None if inside else parts


def _views_between(graph: Graph, plan: Plan, first: Stage, second: Stage, free: Sequence[Stage]) -> list[Stage]:
    """A chain of views that leads from `first` to `second`, or nothing."""
    chain: list[Stage] = []
    last = first
    while True:
        following = [stage for stage in free if stage not in chain and feeds(graph, last, stage)]
        if len(following) != 1:
            return []
        last = following[0]
        chain.append(last)
        if feeds(graph, last, second):
            return chain


def _siblings(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether two stages read the same value that an op makes or forward is given (parameters do not count)."""
    reads = [{ref for name in stage.ops for ref in graph.by_name[name].refs()} for stage in (first, second)]
    return bool((reads[0] & reads[1]) - set(graph.parameters))


def _detour(graph: Graph, plan: Plan, first: Stage, second: Stage, parts: Sequence[Stage]) -> bool:
    """Whether a way leads from `first` to `second` through stages that are not among `parts`."""
    others = [stage for stage in plan.stages if stage not in parts]
    reached = [stage for stage in others if feeds(graph, first, stage)]
    seen = set(reached)
    while reached:
        stage = reached.pop()
        if feeds(graph, stage, second):
            return True
        for other in others:
            if other not in seen and feeds(graph, stage, other):
                seen.add(other)
                reached.append(other)
    return False


def in_order(graph: Graph, stages: list[Stage]) -> list[Stage]:
    """Stages sorted so that every value is made before it is read; otherwise in graph order of their last op."""
    position = {op.name: index for index, op in enumerate(graph.ops)}
    waiting = sorted(stages, key=lambda stage: position[stage.ops[-1]])
    made: set[str] = set()
    made_by_ops = {out for op in graph.ops for out in op.outputs}
    ordered = []
    while waiting:
        for stage in waiting:
            own = {out for name in stage.ops for out in graph.by_name[name].outputs}
            reads = {ref for name in stage.ops for ref in graph.by_name[name].refs()}
            if (reads & made_by_ops) <= made | own:
                ordered.append(stage)
                made |= own
                waiting.remove(stage)
                break
        else:
            raise ValueError(f"stages {[stage.name for stage in waiting]} wait for each other")
    return ordered
