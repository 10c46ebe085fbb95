"""arrays: a recorded tree as numpy arrays, prepared once, for an environment that steps thousands of times a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.action import STOP_KIND
from mtmc.agents.policies.learned.features import action_features, observation_features
from mtmc.rl.rewards import REWARDS, Moment, RewardName
from mtmc.rl.trees import UNKNOWN, RecordedTree

Floats = NDArray[np.float32]
STOP_CHILD = -2
"""In `TreeArrays.children`: `STOP`, which ends an episode."""


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """One tree. Actions of all nodes stand one after the other: those of node i are start[i] to start[i + 1].

    observations: [nodes, features]. actions: [all actions, features]. start: [nodes + 1]. children: [all actions]: a
    node, `UNKNOWN` or `STOP_CHILD`. mask: [all actions], whether it can be replayed.
    ok: [nodes]. runtime_ms: [nodes], NaN for a failure.
    rewards: by name, [all actions], without the step decay; NaN where there is no child.
    """

    tree: RecordedTree
    observations: Floats
    actions: Floats
    start: NDArray[np.int64]
    children: NDArray[np.int32]
    mask: NDArray[np.int8]
    ok: NDArray[np.bool_]
    runtime_ms: NDArray[np.float64]
    rewards: dict[RewardName, NDArray[np.float64]]

    @property
    def most_actions(self) -> int:
        """The greatest number of legal actions of any version."""
        return int(np.diff(self.start).max(initial=0))


def tree_arrays(tree: RecordedTree) -> TreeArrays:
    """Prepare a tree: features of every version and every legal action, and what each known step is worth."""
    counts = [len(node.actions) for node in tree.nodes]
    observations = np.stack([observation_features(tree.observation(node.id), tree.graph) for node in tree.nodes])
    actions = [action_features(tree.observation(node.id), node.actions, tree.graph) for node in tree.nodes]
    children = edge_children(tree)
    return TreeArrays(
        tree=tree,
        observations=observations,
        actions=np.concatenate(actions),
        start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        children=children,
        mask=(children != UNKNOWN).astype(np.int8),
        ok=np.asarray([node.outcome.ok for node in tree.nodes]),
        runtime_ms=node_runtimes(tree),
        rewards=edge_rewards(tree),
    )


def edge_children(tree: RecordedTree) -> NDArray[np.int32]:
    """`TreeArrays.children` of a tree."""
    children = [
        STOP_CHILD if action.kind == STOP_KIND else child
        for node in tree.nodes
        for action, child in zip(node.actions, node.children, strict=True)
    ]
    return np.asarray(children, np.int32)


def edge_rewards(tree: RecordedTree) -> dict[RewardName, NDArray[np.float64]]:
    """`TreeArrays.rewards` of a tree."""
    return {"paper": _worth(tree, REWARDS["paper"]), "log_speedup": _worth(tree, REWARDS["log_speedup"])}


def node_runtimes(tree: RecordedTree) -> NDArray[np.float64]:
    """`TreeArrays.runtime_ms` of a tree."""
    return np.asarray([node.outcome.runtime_ms or np.nan for node in tree.nodes], np.float64)


def _worth(tree: RecordedTree, reward: Callable[[Moment, float], float]) -> NDArray[np.float64]:
    worth = [
        np.nan
        if child == UNKNOWN
        else reward(Moment(tree.nodes[child].outcome, node.outcome, node.outcome.runtime_ms or np.nan, 0), 0.0)
        for node in tree.nodes
        for child in node.children
    ]
    return np.asarray(worth, np.float64)
