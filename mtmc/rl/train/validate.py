"""validate: how good a policy is on trees that it does not learn from: searches replayed with its priors, and its greedy
decoding alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtmc.rl.forest import Forest
from mtmc.rl.replays import REACHED, Curve, Priors, replay_search
from mtmc.rl.train.ragged import log_softmax_np
from mtmc.rl.train.table import Table
from mtmc.search.strategies import Greedy, Mcts

LEAST_GAIN = -math.log2(REACHED)
"""log2 of the best known speedup up to which the root itself is good enough: such a tree tells nothing about a policy."""
FLOOR = 1e-3
"""Share of the prior that is spread evenly in a replay, so that every action can be reached."""


@dataclass(frozen=True)
class Validation:
    """score: share of the best known log2 speedup that a search has found, averaged over its evaluations (the root's left
    out), seeds and trees: 1 for one that finds the best at once. evaluations: mean number to `replays.REACHED` of the best
    known speedup; where it was never reached, one more than there were. greedy: share that the policy gets without a search
    (`search.strategies.Greedy`, the paper's inference)."""

    score: float
    evaluations: float
    greedy: float


def validate(forest: Forest, table: Table, budget: int, seeds: int) -> Validation:
    """budget: evaluations of each replayed search, the root's included. seeds: searches on each tree."""
    curves, greedy = [], []
    for at, priors in zip(worthwhile(forest), priors_by_tree(forest, table), strict=True):
        tree = forest.trees[at]
        curves += [replay_search(tree, Mcts(), priors, budget, seed) for seed in range(seeds)]
        greedy.append(replay_search(tree, Greedy(), priors, budget).values[-1] / tree.best_value)
    return Validation(
        score(curves, budget), mean_evaluations(curves, budget), float(np.mean(greedy)) if greedy else 0.0
    )


def worthwhile(forest: Forest) -> list[int]:
    """The trees in which there is something to find."""
    return [at for at, tree in enumerate(forest.trees) if tree.best_value > LEAST_GAIN]


def score(curves: Sequence[Curve], budget: int) -> float:
    """See `Validation.score`; 0 for no curves."""
    shares = [[curve.at(at) / curve.best for at in range(2, budget + 1)] for curve in curves]
    return float(np.mean(shares)) if shares else 0.0


def mean_evaluations(curves: Sequence[Curve], budget: int) -> float:
    """See `Validation.evaluations`."""
    counts = [curve.evaluations_to() or budget + 1 for curve in curves]
    return float(np.mean(counts)) if counts else 0.0


def priors_by_tree(forest: Forest, table: Table) -> list[Priors]:
    """The policy's priors for each worthwhile tree, as `replay_search` takes them: those of unknown actions, which it leaves
    out, are 0."""
    return [_priors(forest, table, at) for at in worthwhile(forest)]


def _priors(forest: Forest, table: Table, tree: int) -> Priors:
    first = int(forest.roots[tree])
    every = np.arange(first, first + len(forest.trees[tree].nodes))
    nodes = every[forest.choices[every] > 0]
    table.need(nodes)
    batch = forest.batch(nodes)
    probs = np.exp(log_softmax_np(table.logits[batch.edges], batch.counts))
    spread = FLOOR / np.repeat(batch.counts, batch.counts) + (1 - FLOOR) * probs
    whole = np.zeros(int(forest.start[every[-1] + 1] - forest.start[first]))
    whole[batch.edges - forest.start[first]] = spread
    ends = forest.start[every[1:]] - forest.start[first]
    return [part.tolist() for part in np.split(whole, ends)]
