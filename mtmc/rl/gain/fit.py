"""fit: boosted trees, grown in numpy: gradient boosting on histograms, level by level.

Each tree is grown from a share of the rows and of the features, on what is left unexplained, clipped (Huber's loss):

    g = clip(y - prediction, -huber, huber)
    gain of a split = G_l^2 / (n_l + shrink) + G_r^2 / (n_r + shrink) - G^2 / (n + shrink),  G: sum of g, n: rows
    a leaf adds lr G / (n + shrink)

(Friedman 2001, Greedy Function Approximation; stochastic: Friedman 2002; on histograms as LightGBM does, Ke et al. 2017.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.agents.policies.learned.gain.boosted import Boosted
from mtmc.errors import ConfigError
from mtmc.rl.gain.data import Rows
from mtmc.rl.gain.settings import GainSettings

Doubles = NDArray[np.float64]
Bins = NDArray[np.uint8]
_LEAST = 1e-9
"""Gain of a split below which it splits nothing."""


@dataclass(frozen=True, eq=False)
class Binned:
    """Features as numbers of bins. bins: [rows, used features], uint8. edges: of each of these, the values between two bins.
    used: which features these are: those that differ anywhere."""

    bins: Bins
    edges: Sequence[NDArray[np.float32]]
    used: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree over bins. column: [inner nodes], of `Binned.used`, -1: it splits nothing. cut: [inner nodes], above which
    bin a sample goes right. leaf: [leaves], what it adds."""

    column: NDArray[np.intp]
    cut: NDArray[np.intp]
    leaf: Doubles


@dataclass(frozen=True, eq=False)
class Member:
    """One model: base, and its trees."""

    base: float
    trees: Sequence[Tree]

    def predict(self, bins: Bins) -> Doubles:
        """[rows]."""
        return self.base + sum((_applied(tree, bins) for tree in self.trees), np.zeros(len(bins)))


def binned(features: NDArray[np.float32], most: int) -> Binned:
    """Features in up to `most` bins each, by their quantiles."""
    edges: list[NDArray[np.float32]] = []
    used: list[int] = []
    for at in range(features.shape[1]):
        edge = _edges(features[:, at], most)
        if len(edge):
            edges.append(edge)
            used.append(at)
    return Binned(in_bins(features, edges, used), edges, np.asarray(used, np.intp))


def _edges(values: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Between the values where there are `most` of them at most, else at their quantiles."""
    found = np.unique(values)
    if len(found) > most:
        return np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1])).astype(np.float32)
    return ((found[:-1] + found[1:]) / 2).astype(np.float32)


def in_bins(features: NDArray[np.float32], edges: Sequence[NDArray[np.float32]], used: Sequence[int]) -> Bins:
    """Other features in the same bins: in bin b where they are above the edge b - 1 and not above the edge b."""
    columns = [np.searchsorted(edge, features[:, at], side="left") for edge, at in zip(edges, used, strict=True)]
    return np.stack(columns, axis=1).astype(np.uint8) if columns else np.zeros((len(features), 0), np.uint8)


def grown(bins: Bins, wanted: Doubles, settings: GainSettings, trees: int, rng: np.random.Generator) -> Member:
    """A member that predicts `wanted`, [rows]."""
    base = float(np.clip(wanted, -settings.clip, settings.clip).mean())
    left = wanted - base
    found = []
    columns = max(1, round(settings.columns * bins.shape[1]))
    for _ in range(trees):
        rows = np.flatnonzero(rng.random(len(bins)) < settings.rows)
        chosen = np.sort(rng.choice(bins.shape[1], columns, replace=False))
        tree = _tree(bins[np.ix_(rows, chosen)], np.clip(left[rows], -settings.huber, settings.huber), chosen, settings)
        left = left - _applied(tree, bins)
        found.append(tree)
    return Member(base, found)


def _tree(bins: Bins, gradient: Doubles, columns: NDArray[np.intp], settings: GainSettings) -> Tree:
    """One tree. bins: [rows, columns] of what it is grown from. gradient: [rows]. columns: whose bins these are."""
    inner = 2**settings.depth - 1
    column, cut = np.full(inner, -1, np.intp), np.zeros(inner, np.intp)
    at = np.zeros(len(bins), np.intp)  # place of each row's node in its level
    rows = np.arange(len(bins))
    for level in range(settings.depth):
        count = 2**level
        best, where, bin_ = _best_splits(bins, gradient, at, count, settings)
        splits = best > _LEAST
        column[count - 1 : 2 * count - 1] = np.where(splits, columns[where], -1)
        cut[count - 1 : 2 * count - 1] = bin_
        at = 2 * at + (splits[at] & (bins[rows, where[at]] > bin_[at]))
    sums = np.bincount(at, gradient, inner + 1)
    sizes = np.bincount(at, minlength=inner + 1)
    return Tree(column, cut, settings.lr * sums / np.maximum(sizes + settings.shrink, _LEAST))


def _best_splits(
    bins: Bins, gradient: Doubles, at: NDArray[np.intp], count: int, settings: GainSettings
) -> tuple[Doubles, NDArray[np.intp], NDArray[np.intp]]:
    """Of each of `count` nodes the greatest gain of a split, its column, and its bin. at: [rows], which node a row is in."""
    wide, most = bins.shape[1], settings.bins
    keys = ((at[:, None] * wide + np.arange(wide)) * most + bins).ravel()
    shape = (count, wide, most)
    sums = np.bincount(keys, np.repeat(gradient, wide), count * wide * most).reshape(shape).cumsum(axis=2)
    sizes = np.bincount(keys, minlength=count * wide * most).reshape(shape).cumsum(axis=2)
    all_sums, all_sizes = sums[:, :, -1:], sizes[:, :, -1:]
    gain = _score(sums, sizes, settings) + _score(all_sums - sums, all_sizes - sizes, settings)
    gain -= _score(all_sums, all_sizes, settings)
    gain[(sizes < settings.leaf) | (all_sizes - sizes < settings.leaf)] = -1.0
    flat = gain.reshape(count, -1)
    best = flat.argmax(axis=1)
    return flat[np.arange(count), best], best // most, best % most


def _score(sums: Doubles, sizes: NDArray[np.intp], settings: GainSettings) -> Doubles:
    found: Doubles = sums**2 / np.maximum(sizes + settings.shrink, _LEAST)
    return found


def _applied(tree: Tree, bins: Bins) -> Doubles:
    """What a tree adds to each row, [rows]."""
    rows, at = np.arange(len(bins)), np.zeros(len(bins), np.intp)
    for _ in range(len(tree.leaf).bit_length() - 1):
        column = tree.column[at]
        at = 2 * at + 1 + ((column >= 0) & (bins[rows, column] > tree.cut[at]))
    return tree.leaf[at - len(tree.column)]


def fit(rows: Rows, settings: GainSettings, seed: int) -> Boosted:
    """A model of gains, and of how far off it is for a task that it has not seen: `settings.inner` folds by task say that.

    Raises: ConfigError where there are fewer tasks than folds (`task_folds`).
    """
    wanted = np.clip(rows.gains, -settings.clip, settings.clip)
    given = binned(rows.features, settings.bins)

    def rng(*what: int) -> np.random.Generator:
        return np.random.default_rng([settings.seed, seed, *what])

    off = np.zeros(len(rows))
    for fold, held_out in enumerate(task_folds(rows, settings.inner, settings.seed)):
        member = grown(given.bins[~held_out], wanted[~held_out], settings, settings.trees, rng(0, fold))
        off[held_out] = np.abs(wanted[held_out] - member.predict(given.bins[held_out]))
    members = [
        grown(given.bins, wanted, settings, settings.trees, rng(1, number)) for number in range(settings.members)
    ]
    spread = grown(given.bins, off, settings, settings.spread_trees, rng(2))
    return as_boosted([*members, spread], given, rows)


def as_boosted(members: Sequence[Member], given: Binned, rows: Rows) -> Boosted:
    """Members over bins as what a search loads, over the features themselves. The last member is the spread's."""
    trees = [tree for member in members for tree in member.trees]
    splits = [tree.column >= 0 for tree in trees]
    feature = [np.where(does, given.used[tree.column], 0) for does, tree in zip(splits, trees, strict=True)]
    threshold = [
        [given.edges[column][cut] if column >= 0 else np.inf for column, cut in zip(tree.column, tree.cut, strict=True)]
        for tree in trees
    ]
    return Boosted(
        feature=np.asarray(feature, np.int16),
        threshold=np.asarray(threshold, np.float32),
        leaf=np.asarray([tree.leaf for tree in trees], np.float32),
        member=np.repeat(np.arange(len(members), dtype=np.int16), [len(member.trees) for member in members]),
        base=np.asarray([member.base for member in members], np.float32),
        state_names=rows.state_names,
        action_names=rows.action_names,
    )


def task_folds(rows: Rows, folds: int, seed: int) -> list[NDArray[np.bool_]]:
    """For each fold, which rows are held out, [rows]: all rows of a task together. Raises: ConfigError for too few tasks."""
    tasks = np.unique(rows.task)
    if len(tasks) < folds:
        raise ConfigError(f"{len(tasks)} tasks are too few for {folds} folds: record more, or use fewer folds")
    of_task = np.random.default_rng([seed, folds]).permutation(len(tasks)) % folds
    fold = of_task[np.searchsorted(tasks, rows.task)]
    return [fold == number for number in range(folds)]
