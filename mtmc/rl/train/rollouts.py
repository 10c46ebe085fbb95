"""rollouts: many episodes at once (`mtmc.rl.environment.Episodes`), acting by a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.rl.environment import Episodes, Rules
from mtmc.rl.forest import Forest, Ints
from mtmc.rl.train.ragged import Doubles, argmax_np, log_softmax_np
from mtmc.rl.train.table import Table


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


def roll(forest: Forest, table: Table, starts: Ints, rules: Rules, rng: np.random.Generator | None) -> Rollout:
    """Episodes from `starts` (right versions, one an episode), acting by a policy's table. rng: None decodes greedily."""
    episodes, shape = Episodes(forest, starts, rules), (len(starts), rules.steps)
    nodes, places, valid = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    log_probs, values, rewards = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    while episodes.live.any() and episodes.taken < rules.steps:
        at = np.flatnonzero(episodes.live), episodes.taken
        nodes[at], valid[at] = episodes.node[episodes.live], True
        table.need(nodes[at])
        batch = forest.batch(nodes[at])
        scored = log_softmax_np(table.logits[batch.edges], batch.counts)
        noise = 0.0 if rng is None else rng.gumbel(size=len(scored))
        places[at] = argmax_np(scored + noise, batch.counts)
        chosen = np.cumsum(batch.counts) - batch.counts + places[at]
        log_probs[at], values[at] = scored[chosen], table.values[nodes[at]]
        rewards[at] = episodes.step(batch.edges[chosen])
    ending = np.zeros(len(starts))
    cut_off = episodes.node[episodes.live]
    table.need(cut_off)
    ending[episodes.live] = table.values[cut_off]
    best = np.log2(episodes.root_ms / episodes.best_ms)
    return Rollout(nodes, places, log_probs, values, rewards, valid, ending, best, forest.values[episodes.node])
