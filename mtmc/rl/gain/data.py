"""data: recorded trees as rows: the features of a transition, and what it gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mtmc.action import STOP_KIND
from mtmc.agents.policies.learned.gain.facts import gain_features
from mtmc.agents.policies.learned.gain.model import features_of
from mtmc.agents.policies.learned.schedules import Features
from mtmc.agents.policies.learned.vectors import names_in
from mtmc.errors import ConfigError
from mtmc.rl.dataset import concatenated, read_tables
from mtmc.rl.trees import UNKNOWN, RecordedNode, RecordedTree, trees_of

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rows:
    """Transitions from a right version to a right one. features: [rows, features], those of the version first. gains:
    [rows], log2 of the parent's over the child's runtime. task: [rows], number of the tree; node: [rows], of the version in
    it; action: [rows], its index among the legal ones. state_names, action_names: of the features."""

    features: Floats
    gains: NDArray[np.float64]
    task: NDArray[np.intp]
    node: NDArray[np.intp]
    action: NDArray[np.intp]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.gains)

    def of(self, chosen: NDArray[np.bool_]) -> Rows:
        """Some of them. chosen: [rows]."""
        return Rows(
            self.features[chosen],
            self.gains[chosen],
            self.task[chosen],
            self.node[chosen],
            self.action[chosen],
            self.state_names,
            self.action_names,
        )


def read_trees(folders: Sequence[str]) -> list[RecordedTree]:
    """All trees of some folders. Raises: ConfigError where none is given, RunError where one holds no recorded trees."""
    if not folders:
        raise ConfigError("data is missing: give data=FOLDER of recorded trees, which mtmc collect writes")
    tables = [read_tables(Path(folder).expanduser()) for folder in folders]
    return trees_of(tables[0] if len(tables) == 1 else concatenated(tables))


def rows_of(trees: Sequence[RecordedTree]) -> Rows:
    """The transitions of trees, in their order. Raises: ConfigError where there are none that say anything."""
    places: list[tuple[int, int, int]] = []
    gains: list[float] = []
    states: list[Features] = []
    actions: list[Features] = []
    counts: list[int] = []
    for number, tree in enumerate(trees):
        for node in tree.nodes:
            known = telling(tree, node)
            if not known:
                continue
            seen = tree.observation(node.id)
            state, rows = gain_features(seen, node.actions, tree.graph, tree.children_of(node.id), known)
            states.append(state)
            actions += rows
            counts.append(len(rows))
            places += [(number, node.id, at) for at in known]
            gains += [tree.values[node.children[at]] - tree.values[node.id] for at in known]
    if not gains:
        raise ConfigError(f"{len(trees)} trees have no transition from a right version with a plan to another one")
    state_names, action_names = names_in(states), names_in(actions)
    ends = np.cumsum(counts).tolist()
    blocks = [
        features_of(state, actions[end - count : end], state_names, action_names)
        for state, count, end in zip(states, counts, ends, strict=True)
    ]
    task, node_ids, at = np.asarray(places, np.intp).T
    return Rows(np.concatenate(blocks), np.asarray(gains), task, node_ids, at, state_names, action_names)


def telling(tree: RecordedTree, node: RecordedNode) -> list[int]:
    """Indices of the actions of a version that lead to a right one, by a plan that is known."""
    if tree.graph is None or node.plan is None or not node.outcome.ok:
        return []
    return [
        at
        for at, (action, child) in enumerate(zip(node.actions, node.children, strict=True))
        if child != UNKNOWN
        and action.kind != STOP_KIND
        and tree.nodes[child].outcome.ok
        and tree.nodes[child].plan is not None
    ]
