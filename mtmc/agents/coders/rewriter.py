"""The coder `rewriter`, the embedded one: rules over a plan, deterministic, free, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtmc.action import STOP, Action
from mtmc.errors import CoderError
from mtmc.outcome import LOW_PRECISION, Diagnosis, Outcome
from mtmc.protocols import Coder, Edit, EditRequest, Observation
from mtmc.task import Task

if TYPE_CHECKING:
    from mtmc.rewrite.plan import Plan


@dataclass(frozen=True)
class Rewriter(Coder):
    """The embedded coder: an action is an edit of the parent's plan, and the child's source is printed from its plan."""

    @property
    def deterministic(self) -> bool:
        """The same request always gives the same edit."""
        return True

    def root(self, task: Task) -> Edit:
        """The reference itself, with a plan of torch calls. Raises: TaskError if it does not export."""
        from mtmc.rewrite.exported import export_graph
        from mtmc.rewrite.plan import root_plan
        from mtmc.rewrite.source import root_source

        plan = root_plan(export_graph(task))
        return Edit(root_source(task), plan.to_json())

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """What the optimization kinds allow on this version; only `STOP` on a version without a plan."""
        from mtmc.optimizations import possible
        from mtmc.optimizations.resources import blamed
        from mtmc.optimizations.seen import moves_on
        from mtmc.rewrite.exported import export_graph
        from mtmc.rewrite.plan import graph_of, plan_from_json

        if observation.plan is None:
            return [STOP]
        moves = moves_on(observation).values()
        graph = graph_of(export_graph(observation.task), plan_from_json(observation.plan))
        return [move.action for move in possible(moves, blamed(graph, failures))]

    def ahead(self, task: Task, plan: str | None, hardware: str) -> None:
        """List the root's moves as they are where nothing is known of times: most of the work is the same where it is."""
        from mtmc.optimizations.seen import moves_ahead

        if plan is not None:
            moves_ahead(task, plan, hardware)

    def guards(self, task: Task) -> str | None:
        """What the exports say of the task's sizes, dtypes and layouts. Raises: TaskError if it does not export."""
        from mtmc.rewrite.guard_derivation import derive_guards

        return derive_guards(task).to_json()

    def edit(self, request: EditRequest) -> Edit:
        """The child's source; on a repair of one that is less precise than its reference, with more exact products.

        Raises: CoderError on another repair (a rule would do the same again) or an unknown action.
        """
        child = self._child(request)
        if request.feedback is None:
            return _printed(request.task, child)
        found = self._more_exact(request, request.feedback, child)
        if found is None:
            raise CoderError(f"the rewriter has no other way to write {request.action.sentence!r}")
        return found

    def _child(self, request: EditRequest) -> Plan:
        """The plan that the action makes of the parent's."""
        from mtmc.optimizations import KINDS
        from mtmc.optimizations.seen import moves_on

        action = request.action
        if request.plan is None:
            raise CoderError("the rewriter edits only versions that have a plan; use a model for this one")
        if action.kind not in KINDS:
            raise CoderError(f"no rule for the kind {action.kind!r}; the rewriter knows {', '.join(KINDS)}")
        move = moves_on(request).get(action.key)
        if move is None:
            raise CoderError(f"{action.sentence!r} ({action.key}) is none of this version's legal actions")
        if move.child is None:
            raise CoderError(f"{action.sentence!r} makes no new version")
        return move.child

    def _more_exact(self, request: EditRequest, feedback: Diagnosis, child: Plan) -> Edit | None:
        """What follows a child that was less precise than its reference, or what had followed that; None for nothing."""
        from mtmc.evaluate.check.judge import blamed_buffer
        from mtmc.optimizations.more_exact import more_exact
        from mtmc.optimizations.precision import Precision
        from mtmc.optimizations.seen import with_plan

        if feedback.kind != LOW_PRECISION or request.action.kind == Precision.kind:
            return None
        plans = list(more_exact(with_plan(request, child), blamed_buffer(feedback.message)))
        if not plans:
            return None
        first = _printed(request.task, child).source == request.failed_source
        found = _printed(request.task, plans[0 if first else -1])
        return None if found.source == request.failed_source else found


def _printed(task: Task, plan: Plan) -> Edit:
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import graph_of
    from mtmc.rewrite.source import print_plan

    return Edit(print_plan(task, graph_of(export_graph(task), plan), plan).source, plan.to_json())
