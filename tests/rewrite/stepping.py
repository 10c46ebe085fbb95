"""Versions made from a task's root by legal actions, without a search."""

from __future__ import annotations

from mtmc.action import Action
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, legal_actions
from mtmc.optimizations.version import Version
from mtmc.rewrite.capture import capture
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan, root_regions
from mtmc.task import Task


def version(task: Task, plan: Plan) -> Version:
    """The version that a plan is, on an H100."""
    graph = graph_of(capture(task), plan)
    at_root = plan == root_plan(graph)
    regions = root_regions(task, graph, plan) if at_root else dict(print_plan(task, graph, plan).regions)
    return Version(task, graph, plan, regions, hardware("H100"))


def after(start: Version, beginning: str) -> tuple[Action, Version]:
    """The first legal action whose sentence begins so, and the version it makes."""
    action = next(action for action in legal_actions(start) if action.sentence.startswith(beginning))
    plan = KINDS[action.kind].rewrite(start, action)
    assert plan is not None
    return action, version(start.task, plan)
