"""The coder `rewriter`, the embedded one: rules over a plan, deterministic, free, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import STOP, Action
from mtmc.errors import CoderError
from mtmc.outcome import Outcome
from mtmc.protocols import Coder, Edit, EditRequest, Observation
from mtmc.task import Task


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

    def guards(self, task: Task) -> str | None:
        """What the exports say of the task's sizes, dtypes and layouts. Raises: TaskError if it does not export."""
        from mtmc.rewrite.guard_derivation import derive_guards

        return derive_guards(task).to_json()

    def edit(self, request: EditRequest) -> Edit:
        """The child's source. Raises: CoderError on a repair (a rule would do the same again) or an unknown action."""
        from mtmc.optimizations import KINDS
        from mtmc.optimizations.seen import moves_on
        from mtmc.rewrite.exported import export_graph
        from mtmc.rewrite.plan import graph_of
        from mtmc.rewrite.source import print_plan

        action = request.action
        if request.feedback is not None:
            raise CoderError(f"the rewriter has no other way to write {action.sentence!r}")
        if request.plan is None:
            raise CoderError("the rewriter edits only versions that have a plan; use a model for this one")
        if action.kind not in KINDS:
            raise CoderError(f"no rule for the kind {action.kind!r}; the rewriter knows {', '.join(KINDS)}")
        move = moves_on(request).get(action.key)
        if move is None:
            raise CoderError(f"{action.sentence!r} ({action.key}) is none of this version's legal actions")
        if move.child is None:
            raise CoderError(f"{action.sentence!r} makes no new version")
        graph = graph_of(export_graph(request.task), move.child)
        return Edit(print_plan(request.task, graph, move.child).source, move.child.to_json())
