"""Versions made from a task's root by legal moves, without a search."""

from __future__ import annotations

from mtmc.action import Action
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.task import Task


def version(task: Task, plan: Plan | None = None, gpu: str = "H100") -> Version:
    """The version that a plan is; the root without one."""
    return Version.of(task, plan or root_plan(export_graph(task)), hardware(gpu))


def actions_on(start: Version, kind: str = "") -> list[Action]:
    """Its legal actions; those of one kind, where it is given."""
    return [move.action for move in (KINDS[kind].legal(start) if kind else legal_moves(start))]


def child_of(start: Version, action: Action) -> Plan:
    """The plan after one of its legal actions, which must make one."""
    [plan] = [move.child for move in KINDS[action.kind].legal(start) if move.action == action]
    assert plan is not None
    return plan


def after(start: Version, beginning: str) -> tuple[Action, Version]:
    """The first legal action whose sentence begins so, and the version it makes."""
    moves = (move for kind in KINDS.values() for move in kind.legal(start))  # those of the kinds behind it are not made
    move = next(move for move in moves if move.action.sentence.startswith(beginning))
    assert move.child is not None
    return move.action, version(start.task, move.child)
