"""Plan: how a kernel version is made, an ordered list of stages over the exported graph.

A stage is one torch call, or one kernel of a template that covers several ops, with its schedule. A plan is plain data: it
is kept with the node as JSON, and the source is printed from it again at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mtmc.errors import RunError
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.titles import title

TORCH = "torch"
Setting = int | str


@dataclass(frozen=True)
class Stage:
    """One step of forward.

    ops: names of the ops of the graph it covers, in graph order. template: `TORCH` for a torch call (exactly one op).
    schedule: the template's settings by name (block sizes, warps, stages, order, precision, splits), sorted.
    """

    ops: tuple[str, ...]
    template: str = TORCH
    schedule: tuple[tuple[str, Setting], ...] = ()

    @property
    def is_torch(self) -> bool:
        """Whether it is a torch call."""
        return self.template == TORCH

    @property
    def name(self) -> str:
        """Short name: the ops that do work, e.g. "linear_gelu"."""
        names = self.ops if len(self.ops) <= 3 else (*self.ops[:2], self.ops[-1])
        return "_".join(names)

    @property
    def title(self) -> str:
        """What its kernel is called: by what it does where that is known, see `titles`, else `name`."""
        return title(self.ops) or self.name

    def setting(self, name: str) -> Setting:
        """One setting of the schedule. Raises: KeyError."""
        return dict(self.schedule)[name]

    def number(self, name: str) -> int:
        """One setting of the schedule that is a whole number. Raises: KeyError, ValueError."""
        return int(self.setting(name))

    def scheduled(self, changes: Mapping[str, Setting]) -> Stage:
        """The same stage with some settings changed."""
        return Stage(self.ops, self.template, tuple(sorted({**dict(self.schedule), **changes}.items())))


@dataclass(frozen=True)
class Plan:
    """Stages in the order in which they run.

    cuda_graph: whether all of them are replayed as one CUDA graph. direct_launch: whether launches go straight to compiled
    kernels. packed: whether what is made of the module's tensors alone is kept between calls (`mtmc.rewrite.packing`).
    algebra: kinds of rules (`mtmc.rewrite.algebra`) that
    were applied to the exported graph, in order; the stages are over the graph after them.
    """

    stages: tuple[Stage, ...]
    cuda_graph: bool = False
    algebra: tuple[str, ...] = ()
    direct_launch: bool = False
    packed: bool = False

    def stage_of(self, op: str) -> Stage:
        """The stage that covers an op. Raises: KeyError."""
        for stage in self.stages:
            if op in stage.ops:
                return stage
        raise KeyError(op)

    def with_stage(self, old: Stage, new: Stage) -> Plan:
        """The plan with one stage replaced."""
        return self.with_stages({old: new})

    def with_stages(self, changed: Mapping[Stage, Stage]) -> Plan:
        """The plan with some stages replaced. changed: by what."""
        return replace(self, stages=tuple(changed.get(stage, stage) for stage in self.stages))

    def with_merged(self, graph: Graph, parts: Sequence[Stage], merged: Stage) -> Plan:
        """The plan with some stages replaced by one that covers them all, in an order that the dataflow allows."""
        rest = [stage for stage in self.stages if stage not in parts]
        return replace(self, stages=tuple(in_order(graph, [*rest, merged])))

    def to_json(self) -> str:
        """Canonical JSON text: the list of stages, or {"cuda_graph": true, "direct_launch": true, "packed": true,
        "algebra": [kinds], "stages": that list}, of which the others are left out where they are false and empty."""
        stages = [
            {"ops": stage.ops, "template": stage.template, "schedule": dict(stage.schedule)} for stage in self.stages
        ]
        more: dict[str, object] = {"cuda_graph": True} if self.cuda_graph else {}
        more |= {"direct_launch": True} if self.direct_launch else {}
        more |= {"packed": True} if self.packed else {}
        more |= {"algebra": self.algebra} if self.algebra else {}
        data = {**more, "stages": stages} if more else stages
        return json.dumps(data, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=4096)
def plan_from_json(text: str) -> Plan:
    """Inverse of `Plan.to_json`; the same plan for the same text. Raises: KeyError, ValueError on text of another form."""
    data = json.loads(text)
    more = data if isinstance(data, dict) else {}
    stages = more["stages"] if more else data
    return Plan(
        tuple(_stage(tuple(item["ops"]), item["template"], tuple(sorted(item["schedule"].items()))) for item in stages),
        bool(more.get("cuda_graph", False)),
        tuple(more.get("algebra", ())),
        bool(more.get("direct_launch", False)),
        bool(more.get("packed", False)),
    )


@lru_cache(maxsize=65536)
def _stage(ops: tuple[str, ...], template: str, schedule: tuple[tuple[str, Setting], ...]) -> Stage:
    """One object for equal stages, so that what two plans share is quick to see."""
    return Stage(ops, template, schedule)


def root_plan(graph: Graph) -> Plan:
    """The plan of the reference: every op a torch call."""
    return Plan(tuple(Stage((op.name,)) for op in graph.ops))


def graph_of(exported: Graph, plan: Plan) -> Graph:
    """The graph that a plan's stages are over. exported: of its task.

    Raises: CoderError for unknown rules; RunError for ops that are not in the graph, as of a run that another version of
    mtmc began, which follows the task's ops otherwise."""
    from mtmc.rewrite.algebra import after_rules

    graph = after_rules(exported, plan.algebra)
    unknown = next((name for stage in plan.stages for name in stage.ops if name not in graph.by_name), None)
    if unknown is not None:
        raise RunError(
            f"a plan has an op {unknown!r}, which this version of mtmc does not find in the task: go on with the one that "
            "began the run, or begin anew in another folder"
        )
    return graph


def merged_ops(graph: Graph, parts: Sequence[Stage]) -> tuple[str, ...]:
    """The ops of several stages, in graph order."""
    return tuple(sorted({name for stage in parts for name in stage.ops}, key=graph.op_places.__getitem__))


def feeds(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether `second` reads a value that `first` makes."""
    return not graph.flow(first.ops)[0].isdisjoint(graph.flow(second.ops)[1])


class CyclicStages(ValueError):
    """One stage reads what another makes of what it makes itself: a kernel of both ends of a way that leads past it."""


def in_order(graph: Graph, stages: list[Stage]) -> list[Stage]:
    """Stages sorted so that every value is made before it is read; otherwise in graph order of their last op.

    Raises: CyclicStages where there is no such order."""
    waiting = sorted(stages, key=lambda stage: graph.op_places[stage.ops[-1]])
    made = set(graph.given)
    ordered = []
    while waiting:
        for at, stage in enumerate(waiting):
            own, reads = graph.flow(stage.ops)
            if reads - own <= made:
                ordered.append(stage)
                made |= own
                del waiting[at]
                break
        else:
            raise CyclicStages(f"stages {[stage.name for stage in waiting]} wait for each other")
    return ordered
