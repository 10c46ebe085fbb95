"""The coder `rewriter`, the embedded one: rules over a plan, deterministic, free, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtmc.action import STOP, Action
from mtmc.errors import CoderError
from mtmc.outcome import Outcome
from mtmc.protocols import Coder, Edit, EditRequest, Observation
from mtmc.task import Task

if TYPE_CHECKING:
    from mtmc.optimizations.version import Version

ROUGH = 1e-5
"""Norm-wise error above which a reference of fp32 numbers does not compute in fp32: TF32 is off by 1e-4 and more, fp32 by
1e-6 and less."""


@dataclass(frozen=True)
class Rewriter(Coder):
    """The embedded coder: applies an action to the parent's plan and prints the source again."""

    @property
    def deterministic(self) -> bool:
        """The same request always gives the same edit."""
        return True

    def root(self, task: Task) -> Edit:
        """The reference itself as ModelNew, with a plan of torch calls. Raises: TaskError if it does not export."""
        from mtmc.rewrite.capture import capture
        from mtmc.rewrite.plan import root_plan
        from mtmc.rewrite.source import root_source

        plan = root_plan(capture(task))
        return Edit(root_source(task), plan.to_json())

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """What the optimization kinds allow on this version; only `STOP` on a version without a plan."""
        from mtmc.optimizations import legal_actions

        if observation.plan is None:
            return [STOP]
        return legal_actions(_version(observation, observation.plan, failures))

    def edit(self, request: EditRequest) -> Edit:
        """The child's source. Raises: CoderError on a repair (a rule would do the same again) or an unknown action."""
        from mtmc.optimizations import KINDS
        from mtmc.rewrite.capture import capture
        from mtmc.rewrite.plan import graph_of
        from mtmc.rewrite.source import print_plan

        if request.feedback is not None:
            raise CoderError(f"the rewriter has no other way to write {request.action.sentence!r}")
        if request.plan is None:
            raise CoderError("the rewriter edits only versions that have a plan; use a model for this one")
        if request.action.kind not in KINDS:
            raise CoderError(f"no rule for the kind {request.action.kind!r}; the rewriter knows {', '.join(KINDS)}")
        version = _version(request, request.plan, ())
        plan = KINDS[request.action.kind].rewrite(version, request.action)
        if plan is None:
            raise CoderError(f"{request.action.sentence!r} makes no new version")
        graph = graph_of(capture(request.task), plan)
        return Edit(print_plan(request.task, graph, plan).source, plan.to_json())


def _version(
    seen: Observation | EditRequest, plan_text: str, failures: Sequence[tuple[str | None, Outcome]]
) -> Version:
    from mtmc.hardware import hardware
    from mtmc.optimizations.resources import blamed
    from mtmc.optimizations.version import Version
    from mtmc.rewrite.capture import capture
    from mtmc.rewrite.plan import graph_of, plan_from_json, root_plan
    from mtmc.rewrite.source import print_plan, root_regions

    task, plan = seen.task, plan_from_json(plan_text)
    graph = graph_of(capture(task), plan)
    regions = root_regions(task, graph, plan) if plan == root_plan(graph) else print_plan(task, graph, plan).regions
    rough = seen.outcome.metrics.get("reference_error", 0.0) > ROUGH
    return Version(task, graph, plan, regions, hardware(seen.hardware), blamed(graph, failures), rough)
