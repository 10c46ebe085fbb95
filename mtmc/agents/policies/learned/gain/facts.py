"""facts: what is derived of a version and its actions, for a model of gains: what bounds it, and what an action may pay.

    gain_features(observation, actions, graph, children, only)      of the version, and one {name: number} an action

The figures are those of `mtmc.agents.facts`: roofs, the limit, and the most that an action may gain. They are found from
what is known of every version alike, recorded or live, measured or estimated: the outcome's runtime, its task's bytes and
products, and what the plan reads, writes and launches. A profile says more of some versions; a model that learned from
trees without one would not know what to make of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtmc.action import Action
from mtmc.agents.facts.bounds import bounds
from mtmc.agents.facts.gains import Change, gain
from mtmc.agents.policies.learned.costs import PlanCosts, savings
from mtmc.agents.policies.learned.edits import Children, places
from mtmc.agents.policies.learned.features import action_features, graphs_of, observation_features
from mtmc.agents.policies.learned.graphs import GraphFacts
from mtmc.agents.policies.learned.scales import log, ratio
from mtmc.agents.policies.learned.schedules import Features
from mtmc.hardware import hardware
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, plan_from_json

_KEPT = ("bytes_min", "dot_flops", "roofline")
"""Metrics of every version that runs."""


def gain_features(
    observation: Observation,
    actions: Sequence[Action],
    graph: GraphFacts | None,
    children: Children,
    only: Sequence[int],
) -> tuple[Features, list[Features]]:
    """The features that a model of gains knows: of the version, and of the actions `only` (indices).

    observation: of a version with a plan. actions: all legal ones. graph, children, Raises: as
    `mtmc.agents.policies.learned.features.action_features`.
    """
    version = _Version(observation, graph)
    state = {**observation_features(observation, graph), **version.features()}
    rows = action_features(observation, actions, graph, children, only)
    return state, [
        {**row, **version.pays(actions[at], children(actions[at]))} for at, row in zip(only, rows, strict=True)
    ]


class _Version:
    """A version with what bounds it."""

    def __init__(self, observation: Observation, graph: GraphFacts | None) -> None:
        outcome, gpu = observation.outcome, hardware(observation.hardware)
        self.gpu, self.graphs = gpu, graphs_of(observation, graph)
        self.plan = plan_from_json(observation.plan or "")
        self.graph = self.graphs(self.plan.algebra)
        costs = PlanCosts(self.plan, self.graph, gpu)
        moved = sum(costs.facts(stage).bytes for stage in costs.working)
        self.metrics: Mapping[str, float] = {
            **{name: outcome.metrics[name] for name in _KEPT if name in outcome.metrics},
            "bytes_moved": float(moved),
            "kernels": float(len(costs.working)),
        }
        self.bounds = bounds(replace(outcome, metrics=self.metrics), gpu, task_dtype(self.graph))

    def features(self) -> Features:
        """`limit:NAME`; the share of each roof; how far it is from the floor and from the highest roof, log2."""
        found = self.bounds
        if found is None:
            return {}
        named = {f"share_{roof.name}": min(2.0, roof.share) for roof in found.roofs}
        highest = found.roofs[0].ms if found.roofs else 0.0
        far = {
            "above_floor": ratio(found.runtime_ms, found.floor_ms or 0.0),
            "above_roof": ratio(found.device_ms, highest),
        }
        return {f"limit:{found.limit}": 1.0, **named, **far}

    def pays(self, action: Action, child: Plan | None) -> Features:
        """What an action may pay at most, log2 of times; and by its bytes and launches alone."""
        if self.bounds is None or child is None:
            return {}
        saved = savings(places(self.plan, child), self.graph, self.graphs(child.algebra))
        most = gain(action, self.bounds, self.metrics, self.gpu, Change(saved.kernels, saved.bytes))
        moved = self.metrics["bytes_moved"]
        return {
            "pays": 0.0 if most is None else log(most.times),
            "bytes_share": max(-1.0, min(1.0, saved.bytes / moved)) if moved else 0.0,
            "kernels_share_of": max(-1.0, min(1.0, saved.kernels / max(1.0, self.metrics["kernels"]))),
        }


def task_dtype(graph: GraphFacts) -> str | None:
    """The dtype that most numbers of the inputs and weights have; None where none of them floats."""
    sizes: dict[str, int] = {}
    for value in graph.values:
        if value.role != "made" and value.dtype.startswith(("float", "bfloat")):
            sizes[value.dtype] = sizes.get(value.dtype, 0) + math.prod(value.shape)
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None
