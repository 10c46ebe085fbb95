"""open_space: a tree without an action space, for the paper's ablation: at each version anything may be said that is said
anywhere in the tree, legal or not. What is not legal fails."""

from __future__ import annotations

from dataclasses import replace

from mtmc.action import STOP_KIND, Action
from mtmc.outcome import Diagnosis, Outcome
from mtmc.rl.trees import RecordedNode, RecordedTree
from mtmc.search.strategies.common import derived_random

MOST = 32
"""Actions that are added to a version at most; they are drawn."""
_FAILURE = Outcome("build_error", diagnosis=Diagnosis("build", "IllegalAction", "this cannot be done to this version"))


def open_space(tree: RecordedTree, seed: int) -> RecordedTree:
    """The tree with actions of its other versions added to each right version, each leading to a failed version of its own.

    Versions that are already there keep their ids; which actions are legal is no longer told by their being listed.
    """
    rng = derived_random(seed, "open space", tree.key)
    everything: dict[str, Action] = {}
    for node in tree.nodes:
        for action in node.actions:
            if action.kind != STOP_KIND:
                everything.setdefault(action.key, action)
    nodes: list[RecordedNode] = []
    failed: list[RecordedNode] = []
    for node in tree.nodes:
        legal = {action.key for action in node.actions}
        others = [action for key, action in everything.items() if key not in legal]
        added = rng.sample(others, min(MOST, len(others))) if node.actions else []
        first = len(tree.nodes) + len(failed)
        failed += [_failed(first + at, node, action) for at, action in enumerate(added)]
        children = (*node.children, *range(first, first + len(added)))
        nodes.append(replace(node, actions=(*node.actions, *added), children=children))
    return replace(tree, nodes=(*nodes, *failed), open=True, _observations={})


def _failed(number: int, parent: RecordedNode, action: Action) -> RecordedNode:
    return RecordedNode(number, parent.id, action, parent.depth + 1, "", None, _FAILURE, (), ())
