"""Versions made from a task's root by legal moves, without a search."""

from __future__ import annotations

from mtmc.action import Action
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.task import Task


def version(task: Task, plan: Plan | None = None, gpu: str = "H100") -> Version:
    """The version that a plan is; the root without one."""
    return Version.of(task, plan or root_plan(export_graph(task)), hardware(gpu))


def actions_on(start: Version) -> list[Action]:
    """Its legal actions."""
    return [move.action for move in legal_moves(start)]


def child_of(start: Version, action: Action) -> Plan:
    """The plan after one of its legal actions, which must make one."""
    [plan] = [move.child for move in legal_moves(start) if move.action == action]
    assert plan is not None
    return plan


def after(start: Version, beginning: str) -> tuple[Action, Version]:
    """The first legal action whose sentence begins so, and the version it makes."""
    action = next(action for action in actions_on(start) if action.sentence.startswith(beginning))
    return action, version(start.task, child_of(start, action))
