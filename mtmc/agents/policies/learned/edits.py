"""edits: what an action changes, from the plan before it and the plan after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.optimizations.seen import moves_on
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, Stage

Children = Callable[[Action], Plan | None]
"""The plan after an action, None where nobody knows it: a model will write the child, or the action makes none."""


@dataclass(frozen=True)
class Place:
    """One place of a plan that an edit changes: the stages that go and those that come, both in their plan's order."""

    before: tuple[Stage, ...]
    after: tuple[Stage, ...]


def children_of(observation: Observation) -> Children:
    """The plans after the legal actions of a version that has a plan, each made when it is asked for."""
    moves = moves_on(observation)

    def child(action: Action) -> Plan | None:
        move = moves.get(action.key)
        return None if move is None else move.child

    return child


def places(before: Plan, after: Plan) -> list[Place]:
    """Where two plans differ, in the order of the plan after.

    A stage that comes replaces those that go whose ops it covers. What is left on both sides (algebra replaces ops) is one
    place more.
    """
    gone, come = _only_in(before, after), _only_in(after, before)
    found: list[Place] = []
    for stage in come:
        covered = set(stage.ops)
        replaced = tuple(old for old in gone if covered.issuperset(old.ops))
        if replaced:
            found.append(Place(replaced, (stage,)))
    placed = {stage for place in found for stage in (*place.before, *place.after)}
    gone_left, come_left = (tuple(stage for stage in stages if stage not in placed) for stages in (gone, come))
    return [*found, Place(gone_left, come_left)] if gone_left or come_left else found


def _only_in(plan: Plan, other: Plan) -> list[Stage]:
    """The stages of a plan that the other does not have. Most are the very same objects, which is quick to see."""
    same = set(map(id, other.stages))
    candidates = [stage for stage in plan.stages if id(stage) not in same]
    known = set(other.stages) if candidates else set()
    return [stage for stage in candidates if stage not in known]
