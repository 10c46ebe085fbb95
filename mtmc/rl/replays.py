"""replays: a search on a recorded tree: how many evaluations would it have taken?

The project's own strategies run as they do live, with any priors, but each trial's end is looked up. Actions whose end
nobody knows are left out, and the priors of the others are scaled to sum 1. What costs an evaluation live costs one here:
a version that this search has not met. Hundreds of replays take seconds, so priors can be compared on many trees and seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtmc.action import STOP_KIND, Action
from mtmc.agents.policies.learned.gain.boosted import Boosted
from mtmc.agents.policies.learned.gain.model import expected
from mtmc.errors import ConfigError
from mtmc.protocols import Observation, Policy, Strategy
from mtmc.reward import VALUE_FLOOR
from mtmc.rl.trees import RecordedTree
from mtmc.search.strategies.common import derived_random

Priors = Sequence[Sequence[float]]
"""For each node of a tree, a probability for each of its legal actions (recorded or not); empty where it has none."""
Gains = Priors
"""The same of what each action is expected to gain, log2."""

REACHED = 0.95
"""Share of the best known speedup that counts as reached."""


@dataclass(frozen=True)
class Curve:
    """Best log2 speedup over the root after each evaluation: values[0] after the root's own, which is 0.

    best: the best known value of the tree. nodes: of the tree, the version that each evaluation was of.
    """

    values: tuple[float, ...]
    best: float
    nodes: tuple[int, ...] = ()

    def at(self, evaluations: int) -> float:
        """The best value after so many evaluations (1: the root's); the last one where the search ended before."""
        return self.values[min(evaluations, len(self.values)) - 1]

    def evaluations_to(self, share: float = REACHED) -> int | None:
        """Evaluations until the speedup is `share` of the best known; None where it never is."""
        target = self.best + math.log2(share)
        return next((count for count, value in enumerate(self.values, 1) if value >= target), None)


@dataclass(frozen=True)
class _Shown:
    """What a strategy is shown of a node. actions: indices into its legal list, in the order shown."""

    actions: tuple[int, ...]
    priors: tuple[float, ...]
    stop_index: int | None


def priors_of(tree: RecordedTree, policy: Policy, texts: bool | None = None) -> list[list[float]]:
    """A policy's priors for every version of a tree, as a live search would get them.

    texts: whether the policy reads the text of versions, which is then printed from their plans (a while each); by default
    as its property `reads_text` says.
    Raises: CoderError or TaskError where a text cannot be printed.
    """
    texts = policy.reads_text if texts is None else texts
    asked: list[tuple[Observation, Sequence[Action]]] = []
    for node in tree.nodes:
        if node.actions:
            seen = tree.observation(node.id)
            asked.append((replace(seen, source=tree.version_text(node.id)) if texts else seen, node.actions))
    told = iter(policy.priors(asked))
    return [next(told) if node.actions else [] for node in tree.nodes]


def gains_of(tree: RecordedTree, model: Boosted, spreads: float = 0.0) -> list[list[float]] | None:
    """What a model expects of every legal action of every version of a tree, as a live search with `agents.gain` would be
    told. spreads: see `AgentSettings.gain_spreads`. None of a tree without a graph: nothing is known of its plans."""
    if tree.graph is None:
        return None
    told = [
        expected(model, tree.observation(node.id), node.actions, tree.graph, tree.children_of(node.id))
        if node.actions
        else []
        for node in tree.nodes
    ]
    return [[each.gain + spreads * each.spread for each in of_node or []] for of_node in told]


def replay_search(
    tree: RecordedTree, strategy: Strategy, priors: Priors, budget: int, seed: int = 0, gains: Gains | None = None
) -> Curve:
    """One search on a recorded tree.

    strategy: any of `mtmc.search.strategies`. priors: of every node, see `priors_of`. budget: evaluations, the root's
    included. seed: of the strategy, and of the order in which actions are listed, which decides between equal priors (a
    search would else profit from the order in which the rewriter lists them). gains: what the strategy is told that each
    action gains, as `priors`; empty for a version of which nothing is known, None for a tree of which nothing is.

    Raises: ConfigError for priors of another tree.
    """
    if len(priors) != len(tree.nodes):
        raise ConfigError(f"priors of {len(priors)} versions do not fit tree {tree.name}, which has {len(tree.nodes)}")
    return _Replay(tree, strategy, priors, seed, gains).run(budget)


class _Replay:
    """A search under way. ids: recorded node -> its id in this search; met: the other way round."""

    def __init__(
        self, tree: RecordedTree, strategy: Strategy, priors: Priors, seed: int, gains: Gains | None = None
    ) -> None:
        self._tree, self._strategy, self._priors, self._gains = tree, strategy, priors, gains
        self._rng = derived_random(seed, "replay", tree.key)
        self._state: Any = strategy.start(seed, True)
        self._ids: dict[int, int] = {}
        self._met: list[tuple[int, _Shown]] = []

    def run(self, budget: int) -> Curve:
        values = [self._meet(0, -1)]
        while len(values) < budget:
            trials, self._state = self._strategy.ask(self._state, 1)
            if not trials:
                break
            trial = trials[0]
            node, shown = self._met[trial.node_id]
            child = self._tree.nodes[node].children[shown.actions[trial.action_index]]
            if child not in self._ids:
                values.append(max(values[-1], self._meet(child, trial.node_id)))
            self._state = self._strategy.tell(self._state, trial.id, self._ids[child], self._tree.values[child])
        return Curve(tuple(values), self._tree.best_value, tuple(node for node, _ in self._met))

    def _meet(self, node: int, parent_id: int) -> float:
        """Make a version known to the strategy; returns its value."""
        shown = _shown(self._tree, node, self._priors[node], self._rng)
        value = self._tree.values[node]
        self._ids[node] = len(self._met)
        self._met.append((node, shown))
        given = (self._state, self._ids[node], parent_id, shown.priors, value, shown.stop_index)
        gains = [] if self._gains is None else self._gains[node]
        if gains and shown.actions:
            self._state = self._strategy.add_node(*given, [value + gains[index] for index in shown.actions])
        else:
            self._state = self._strategy.add_node(*given)
        return value


def _shown(tree: RecordedTree, node: int, priors: Sequence[float], rng: random.Random) -> _Shown:
    recorded = tree.nodes[node]
    known = list(recorded.known)
    if tree.values[node] <= VALUE_FLOOR or not known:
        return _Shown((), (), None)
    rng.shuffle(known)
    total = sum(priors[index] for index in known)
    stop = next((at for at, index in enumerate(known) if recorded.actions[index].kind == STOP_KIND), None)
    return _Shown(tuple(known), tuple(priors[index] / total for index in known), stop)
