"""costs: what the stages of a plan cost at least, and what an edit of it saves."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.agents.policies.learned.edits import Place
from mtmc.agents.policies.learned.graphs import GraphFacts
from mtmc.agents.policies.learned.stages import StageFacts, stage_facts
from mtmc.hardware import Hardware
from mtmc.rewrite.plan import Plan, Stage


class PlanCosts:
    """What a plan costs. working: its stages that launch something (views do not). times: of each of them, microseconds that
    it takes at least. total_us: their sum."""

    def __init__(self, plan: Plan, graph: GraphFacts, gpu: Hardware) -> None:
        self.plan, self.graph, self.gpu = plan, graph, gpu
        self.working = [stage for stage in plan.stages if not is_view(stage, self.facts(stage))]
        self.times = {stage: _us(self.facts(stage), gpu) for stage in self.working}
        self.total_us = sum(self.times.values())

    def facts(self, stage: Stage) -> StageFacts:
        """What a stage computes."""
        return stage_facts(self.graph, stage.ops)


class Savings:
    """Sums over all places of an edit: what was there less what is there afterwards.

    bytes_saved: read and written. kernels_saved: launches. flops_saved. before, after: the graphs of the two plans.
    """

    def __init__(self, changed: Sequence[Place], before: GraphFacts, after: GraphFacts) -> None:
        self.bytes_saved, self.kernels_saved, self.flops_saved = 0, 0, 0.0
        for place in changed:
            for sign, stages, graph in ((1, place.before, before), (-1, place.after, after)):
                for stage in stages:
                    facts = stage_facts(graph, stage.ops)
                    if not is_view(stage, facts):
                        self.bytes_saved += sign * facts.bytes
                        self.kernels_saved += sign
                        self.flops_saved += sign * facts.flops


def is_view(stage: Stage, facts: StageFacts) -> bool:
    """Whether a stage is a torch call that launches nothing."""
    return stage.is_torch and facts.count("view") == len(stage.ops)


def _us(facts: StageFacts, gpu: Hardware) -> float:
    """Microseconds that a stage takes at least."""
    return facts.us(gpu) if facts.bytes else 0.0
