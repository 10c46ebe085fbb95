"""forest: recorded trees as one set of numpy arrays, prepared once, and batches of their versions.

A *node* here is a version and an *edge* one legal action of one version, both numbered through the whole forest, so that a
batch of states is an array of numbers and nothing is looked up tree by tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mtmc.action import STOP_KIND, Action
from mtmc.agents.policies.learned.features import HEURISTIC, action_features, observation_features
from mtmc.agents.policies.learned.vectors import matrix, names_in
from mtmc.errors import ConfigError
from mtmc.protocols import Observation
from mtmc.rl.rewards import OF_EDGES, RewardName
from mtmc.rl.trees import UNKNOWN, RecordedTree

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
STOP_CHILD = -2
"""In `Forest.children`: `STOP`, which ends an episode."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Several trees. Edges of all nodes stand one after the other: those of node i are start[i] to start[i + 1].

    roots: [trees], the first node of each. tree_of: [nodes]. start: [nodes + 1]. children: [edges], a node, `UNKNOWN` or
    `STOP_CHILD`. known: [edges], whether it can be replayed.
    state_names, action_names: of the features (`mtmc.agents.policies.learned.features`).
    observations: [nodes, state_names]. actions: [known edges, action_names]. row: [edges], place in `actions`, -1 if not
    known. ok: [nodes]. runtime_ms: [nodes], NaN for a failure. values: [nodes], log2 speedup over the tree's root, the floor
    for a failure. rewards: by name (`mtmc.rl.rewards.OF_EDGES`), [edges]; NaN where there is no child.
    """

    trees: tuple[RecordedTree, ...]
    roots: Ints
    tree_of: Ints
    start: Ints
    children: Ints
    known: NDArray[np.bool_]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    observations: Floats
    actions: Floats
    row: Ints
    ok: NDArray[np.bool_]
    runtime_ms: NDArray[np.float64]
    values: NDArray[np.float64]
    rewards: dict[RewardName, NDArray[np.float64]]

    @cached_property
    def choices(self) -> Ints:
        """How many actions of each version can be replayed, [nodes]."""
        parents = np.repeat(np.arange(len(self.ok)), np.diff(self.start))
        return np.bincount(parents[self.known], minlength=len(self.ok))

    @property
    def most_actions(self) -> int:
        """The greatest number of legal actions of any version."""
        return int(np.diff(self.start).max(initial=0))

    def observation(self, node: int) -> Observation:
        """What a policy sees of a version, but for its text."""
        tree, number = self._place(node)
        return tree.observation(number)

    def version_text(self, node: int) -> str:
        """The text of a version, printed from its plan. Raises: RunError where it has none, CoderError, TaskError."""
        tree, number = self._place(node)
        return tree.version_text(number)

    def legal(self, node: int) -> tuple[Action, ...]:
        """The legal actions of a version, those of its edges, whether or not they can be replayed."""
        tree, number = self._place(node)
        return tree.nodes[number].actions

    def action(self, edge: int) -> Action:
        """The action of an edge."""
        node = int(np.searchsorted(self.start, edge, side="right")) - 1
        return self.legal(node)[int(edge - self.start[node])]

    def batch(self, nodes: Ints) -> Batch:
        """States with the actions that can be replayed. nodes: [states], any may come twice."""
        counts = self.start[nodes + 1] - self.start[nodes]
        edges = np.repeat(self.start[nodes], counts) + within(counts)
        return Batch(self, nodes, edges[self.known[edges]], self.choices[nodes])

    def _place(self, node: int) -> tuple[RecordedTree, int]:
        tree = int(self.tree_of[node])
        return self.trees[tree], int(node - self.roots[tree])


@dataclass(frozen=True, eq=False)
class Batch:
    """States, each with the actions that are to be scored.

    nodes: [states]. edges: [all actions], state by state. counts: [states], how many of the edges are each state's; a
    state may have none.
    """

    forest: Forest
    nodes: Ints
    edges: Ints
    counts: Ints

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def state_of(self) -> Ints:
        """[all actions]: position in `nodes` of the state that each action is of."""
        return np.repeat(np.arange(len(self.nodes)), self.counts)

    @property
    def observations(self) -> Floats:
        """Features of the states, [states, features], see `mtmc.agents.policies.learned.features`."""
        return self.forest.observations[self.nodes]

    @property
    def actions(self) -> Floats:
        """Features of the actions, [all actions, features]."""
        return self.forest.actions[self.forest.row[self.edges]]

    @property
    def opinions(self) -> Floats:
        """Logarithms of the heuristic's priors of the actions, but for a constant of each state, [all actions]."""
        return self.actions[:, self.forest.action_names.index(HEURISTIC)]

    def part(self, first: int, last: int) -> Batch:
        """The states from `first` to before `last`."""
        ends = np.concatenate(([0], np.cumsum(self.counts)))
        return Batch(self.forest, self.nodes[first:last], self.edges[ends[first] : ends[last]], self.counts[first:last])


def forest_of(trees: Sequence[RecordedTree], like: Forest | None = None) -> Forest:
    """Trees as one forest, in this order. like: a forest whose features it is to have; by default it has all that occur.

    Raises: ConfigError for none.
    """
    if not trees:
        raise ConfigError("there are no trees to learn from: record some with mtmc collect, or name another folder")
    sizes = np.asarray([len(tree.nodes) for tree in trees], np.int64)
    roots = np.cumsum(sizes) - sizes
    nodes = [node for tree in trees for node in tree.nodes]
    children = np.concatenate([_children(tree, root) for tree, root in zip(trees, roots, strict=True)])
    known = children != UNKNOWN
    state_names, observations = _joined(
        [_observations(tree) for tree in trees], None if like is None else like.state_names
    )
    action_names, actions = _joined([_actions(tree) for tree in trees], None if like is None else like.action_names)
    return Forest(
        trees=tuple(trees),
        roots=roots,
        tree_of=np.repeat(np.arange(len(trees)), sizes),
        start=np.cumsum([0, *(len(node.actions) for node in nodes)]),
        children=children,
        known=known,
        state_names=state_names,
        action_names=action_names,
        observations=observations,
        actions=actions,
        row=np.where(known, np.cumsum(known) - 1, -1),
        ok=np.asarray([node.outcome.ok for node in nodes]),
        runtime_ms=np.asarray([node.outcome.runtime_ms or np.nan for node in nodes]),
        values=np.concatenate([tree.values for tree in trees]),
        rewards={name: np.concatenate([_rewards(tree, name) for tree in trees]) for name in OF_EDGES},
    )


def within(counts: Ints) -> Ints:
    """0, 1, ... within each group: [2, 3] -> 0 1 0 1 2."""
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)


def _children(tree: RecordedTree, root: int) -> Ints:
    children = [
        STOP_CHILD if action.kind == STOP_KIND else child if child == UNKNOWN else root + child
        for node in tree.nodes
        for action, child in zip(node.actions, node.children, strict=True)
    ]
    return np.asarray(children, np.int64)


def _rewards(tree: RecordedTree, name: RewardName) -> NDArray[np.float64]:
    reward = OF_EDGES[name]
    rewards = [
        np.nan if child == UNKNOWN else reward(tree.nodes[child].outcome, node.outcome)
        for node in tree.nodes
        for child in node.children
    ]
    return np.asarray(rewards, np.float64)


Named = tuple[tuple[str, ...], Floats]
"""Names of features, and rows of them."""


def _observations(tree: RecordedTree) -> Named:
    return _named([observation_features(tree.observation(node.id), tree.graph) for node in tree.nodes], ())


def _actions(tree: RecordedTree) -> Named:
    rows = [
        row
        for node in tree.nodes
        for row in action_features(
            tree.observation(node.id), node.actions, tree.graph, tree.children_of(node.id), only=node.known
        )
    ]
    return _named(rows, (HEURISTIC,))


def _named(rows: Sequence[Mapping[str, float]], always: tuple[str, ...]) -> Named:
    names = names_in([*rows, dict.fromkeys(always, 0.0)])
    return names, matrix(rows, names)


def _joined(parts: Sequence[Named], names: tuple[str, ...] | None) -> Named:
    """Rows of several trees one after the other, over the same names: those given, or all."""
    names = names or names_in(dict.fromkeys(each, 0.0) for each, _ in parts)
    place = {name: at for at, name in enumerate(names)}
    joined = np.zeros((sum(len(rows) for _, rows in parts), len(names)), np.float32)
    start = 0
    for own, rows in parts:
        kept = [(at, place[name]) for at, name in enumerate(own) if name in place]
        from_, to = (list(each) for each in zip(*kept, strict=True)) if kept else ([], [])
        joined[start : start + len(rows), to] = rows[:, from_]
        start += len(rows)
    return names, joined
