"""rollouts: many episodes at once. What a step does and is worth is that of `mtmc.rl.environment.TreeEnvironment`, of which
this is the vectorized twin: the same actions give the same nodes, rewards and ends (there is a test)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.reward import STEP_DECAY
from mtmc.rl.arrays import STOP_CHILD
from mtmc.rl.environment import OnFailure
from mtmc.rl.forest import Forest, Ints
from mtmc.rl.rewards import RewardName
from mtmc.rl.train.ragged import Doubles, argmax_np, log_softmax_np
from mtmc.rl.train.table import Table


@dataclass(frozen=True)
class Rules:
    """How an episode goes, see `TreeEnvironment`."""

    reward: RewardName = "paper"
    decay: float = STEP_DECAY
    steps: int = 10
    on_failure: OnFailure = "stay"


@dataclass(frozen=True, eq=False)
class Rollout:
    """Episodes. All arrays but the last three are [episodes, steps] and hold nothing where `valid` is False.

    nodes: where each step was taken. places: which of the node's known edges. log_probs: of it. values: of the node.
    rewards. valid. ending: [episodes], value of the state that an episode was cut off in, 0 for one that ended.
    best, last: [episodes], log2 speedup over the root of the best and of the last version.
    """

    nodes: Ints
    places: Ints
    log_probs: Doubles
    values: Doubles
    rewards: Doubles
    valid: NDArray[np.bool_]
    ending: Doubles
    best: Doubles
    last: Doubles


class _Episodes:
    """Episodes under way."""

    def __init__(self, forest: Forest, starts: Ints, rules: Rules) -> None:
        shape = (len(starts), rules.steps)
        self.forest, self.rules = forest, rules
        self.node = starts.copy()
        self.best_ms = forest.runtime_ms[starts].copy()
        self.live = forest.batch(starts).counts > 0
        self.nodes, self.places = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.log_probs, self.values, self.rewards = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.valid = np.zeros(shape, bool)

    def step(self, at: int, table: Table, rng: np.random.Generator | None) -> None:
        """One step of all that are live. rng: None takes the most probable action."""
        live = np.flatnonzero(self.live)
        nodes = self.node[live]
        table.need(nodes)
        batch = self.forest.batch(nodes)
        log_probs = log_softmax_np(table.logits[batch.edges], batch.counts)
        noise = 0.0 if rng is None else rng.gumbel(size=len(log_probs))
        places = argmax_np(log_probs + noise, batch.counts)
        chosen = np.cumsum(batch.counts) - batch.counts + places
        self.nodes[live, at], self.places[live, at] = nodes, places
        self.log_probs[live, at], self.values[live, at] = log_probs[chosen], table.values[nodes]
        self.valid[live, at] = True
        self.take(at, live, batch.edges[chosen])

    def take(self, at: int, live: Ints, edges: Ints) -> None:
        """What comes of an edge for each live episode."""
        forest, children = self.forest, self.forest.children[edges]
        stopped = children == STOP_CHILD
        child = np.where(stopped, self.node[live], children)
        worth = self._worth(edges, child, live) - self.rules.decay * (at + 1)
        self.rewards[live, at] = np.where(stopped, 0.0, worth)
        moves = forest.ok[child] | (self.rules.on_failure == "end")
        self.node[live] = np.where(moves, child, self.node[live])
        runtime = np.where(forest.ok[child], forest.runtime_ms[child], np.inf)
        self.best_ms[live] = np.minimum(self.best_ms[live], runtime)
        self.live[live] = ~stopped & (forest.batch(self.node[live]).counts > 0)

    def _worth(self, edges: Ints, child: Ints, live: Ints) -> Doubles:
        if self.rules.reward != "progress":
            return self.forest.rewards[self.rules.reward][edges]
        ok = self.forest.ok[child]
        gain = np.log2(
            self.best_ms[live] / np.where(ok, self.forest.runtime_ms[child], np.inf), where=ok, out=np.zeros(len(ok))
        )
        return np.maximum(0.0, gain)


def roll(forest: Forest, table: Table, starts: Ints, rules: Rules, rng: np.random.Generator | None) -> Rollout:
    """Episodes from `starts` (right versions, one an episode), acting by a policy's table. rng: None decodes greedily."""
    episodes = _Episodes(forest, starts, rules)
    for at in range(rules.steps):
        if not episodes.live.any():
            break
        episodes.step(at, table, rng)
    cut_off = np.flatnonzero(episodes.live)
    ending = np.zeros(len(starts))
    table.need(episodes.node[cut_off])
    ending[cut_off] = table.values[episodes.node[cut_off]]
    root_ms = forest.runtime_ms[forest.roots[forest.tree_of[starts]]]
    return Rollout(
        episodes.nodes,
        episodes.places,
        episodes.log_probs,
        episodes.values,
        episodes.rewards,
        episodes.valid,
        ending,
        best=np.log2(root_ms / episodes.best_ms),
        last=forest.values[episodes.node],
    )
