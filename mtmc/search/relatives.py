"""Relatives: what a tree holds of a version besides its ancestors, as it was when the version was looked at."""

from __future__ import annotations

from mtmc.protocols import Relatives, Step
from mtmc.search.run_state import Run, history
from mtmc.tree import KernelNode, Tree

MOST = 12
"""Siblings, and failures, that are told of at most: the latest."""


def relatives_of(run: Run, node_id: int, known: int, kind: str | None = None) -> Relatives:
    """Relatives of a node among the first `known` ones of the tree.

    kind: of the action that is to be applied: failures of that kind come last, which is where room is left for them.
    Nothing where agents may be told nothing of it.
    """
    if not run.settings.agents.memory_tokens:
        return Relatives()
    tree = run.tree
    siblings = [child for child in tree.children(node_id) if child.id < known]
    failed = [node for node in list(tree)[:known] if not node.outcome.ok and node.parent_id != node_id]
    failed.sort(key=lambda node: (kind is not None and node.action is not None and node.action.kind == kind, node.id))
    best = _best(tree, known)
    ancestors = {node.id for node in tree.path(node_id)}
    path = () if best in ancestors else history(tree, best)
    return Relatives(
        tuple(_step(tree, node) for node in siblings[-MOST:]),
        tuple(_step(tree, node) for node in failed[-MOST:]),
        path,
    )


def _best(tree: Tree, known: int) -> int:
    """The fastest of the first nodes; the earliest of equals."""
    if tree.best.id < known:
        return tree.best.id
    return max(range(known), key=lambda node_id: (tree.speedup(node_id) or 0.0, -node_id))


def _step(tree: Tree, node: KernelNode) -> Step:
    assert node.action is not None
    return Step(node.action, node.source, node.outcome, tree.speedup(node.id))
