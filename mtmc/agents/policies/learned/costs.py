"""costs: what the stages of a plan cost at least, and what an edit of it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Savings:
    """What an edit leaves out in all its places: bytes that are read and written, launches, flops. Below 0: it adds them."""

    bytes: int
    kernels: int
    flops: float


def savings(changed: Sequence[Place], before: GraphFacts, after: GraphFacts) -> Savings:
    """Of an edit's places, what was there less what is there afterwards. before, after: the graphs of the two plans."""
    gone = [facts for place in changed for facts in _working(place.before, before)]
    come = [facts for place in changed for facts in _working(place.after, after)]
    return Savings(
        bytes=sum(facts.bytes for facts in gone) - sum(facts.bytes for facts in come),
        kernels=len(gone) - len(come),
        flops=sum(facts.flops for facts in gone) - sum(facts.flops for facts in come),
    )


def _working(stages: Sequence[Stage], graph: GraphFacts) -> list[StageFacts]:
    """What each of the stages that launch something computes."""
    found = [(stage, stage_facts(graph, stage.ops)) for stage in stages]
    return [facts for stage, facts in found if not is_view(stage, facts)]


def is_view(stage: Stage, facts: StageFacts) -> bool:
    """Whether a stage is a torch call that launches nothing."""
    return stage.is_torch and facts.count("view") == len(stage.ops)


def _us(facts: StageFacts, gpu: Hardware) -> float:
    """Microseconds that a stage takes at least."""
    return facts.us(gpu) if facts.bytes else 0.0
