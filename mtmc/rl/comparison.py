"""comparison: searches of different strategies and policies on the same trees, with intervals and paired tests.

Values are log2 of the best speedup over the root, arrays [trees, seeds]. A tree is what is drawn and what is paired, with
all its seeds: two searches of one tree have most of what decides in common, and seeds of one tree are no independent trees.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.errors import ConfigError
from mtmc.rl.replays import Curve

Values = NDArray[np.float64]

DRAWS = 4000
"""Of a bootstrap, and of a test that cannot try every sign."""
EXACT = 12
"""Trees up to which a test tries every sign."""
SAME = 1e-9
"""log2 difference below which two searches found the same."""


@dataclass(frozen=True)
class Standing:
    """What searches found on many trees, as speedups over the root.

    geometric_mean: over trees and seeds, low and high: its 95% interval, trees drawn anew. mean: over trees and seeds.
    median: over trees, of the geometric mean of its seeds.
    """

    geometric_mean: float
    low: float
    high: float
    mean: float
    median: float


@dataclass(frozen=True)
class Paired:
    """What one kind of search found as a ratio to what another found on the same trees.

    ratio: of the geometric means, low and high: its 95% interval. won, tied, lost: trees. p: probability of a difference as
    large or larger, were it a coin's matter on each tree which of the two is called which (two-sided).
    """

    ratio: float
    low: float
    high: float
    won: int
    tied: int
    lost: int
    p: float


def values_at(curves: Sequence[Sequence[Curve]], evaluations: int) -> Values:
    """[trees, seeds]: log2 of the best speedup after so many evaluations, the root's included."""
    return np.asarray([[curve.at(evaluations) for curve in of_tree] for of_tree in curves])


def values_within(curves: Sequence[Sequence[Curve]], costs: Sequence[Sequence[float]], most: float) -> Values:
    """[trees, seeds]: log2 of the best speedup of what was evaluated before more than `most` was spent.

    costs: of each tree, what each of its versions took (seconds or US dollars).
    """
    found = [[_within(curve, of_tree, most) for curve in some] for some, of_tree in zip(curves, costs, strict=True)]
    return np.asarray(found)


def _within(curve: Curve, costs: Sequence[float], most: float) -> float:
    spent = np.cumsum([costs[node] for node in curve.nodes])
    count = int(np.searchsorted(spent, most * (1 + 1e-12), side="right"))
    return curve.values[count - 1] if count else 0.0


def standing(values: Values, rng: np.random.Generator) -> Standing:
    """See `Standing`. values: [trees, seeds]. Raises: ConfigError for no trees."""
    by_tree = _by_tree(values)
    low, high = _interval(by_tree, rng)
    return Standing(
        geometric_mean=float(2 ** by_tree.mean()),
        low=low,
        high=high,
        mean=float((2**values).mean()),
        median=float(np.median(2**by_tree)),
    )


def paired(values: Values, base: Values, rng: np.random.Generator) -> Paired:
    """See `Paired`. values, base: [trees, seeds], of the same trees in the same order; seeds may differ in number.

    Raises: ConfigError for no trees, or other ones.
    """
    one, other = _by_tree(values), _by_tree(base)
    if len(one) != len(other):
        raise ConfigError(f"searches of {len(one)} and of {len(other)} trees cannot be paired: replay both on the same")
    difference = one - other
    low, high = _interval(difference, rng)
    won, lost = int((difference > SAME).sum()), int((difference < -SAME).sum())
    p = sign_test(difference, rng)
    return Paired(float(2 ** difference.mean()), low, high, won, len(one) - won - lost, lost, p)


def sign_test(difference: Values, rng: np.random.Generator) -> float:
    """Two-sided p of a mean that is not 0, by turning the signs of the differences [trees]: every way where there are up to
    `EXACT` of them, else `DRAWS` drawn ways and the one that was found."""
    given = difference[np.abs(difference) > SAME]
    if not len(given):
        return 1.0
    least = abs(given.sum()) - SAME
    if len(given) <= EXACT:
        signs = np.asarray(list(itertools.product((-1.0, 1.0), repeat=len(given))))
        return float((np.abs(signs @ given) >= least).mean())
    signs = rng.choice((-1.0, 1.0), size=(DRAWS, len(given)))
    return float(((np.abs(signs @ given) >= least).sum() + 1) / (DRAWS + 1))


def holm(ps: Sequence[float]) -> list[float]:
    """p of each of several tests, corrected for their number by Holm's way: the k-th smallest times what is left, and none
    below one that was smaller."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    found = [1.0] * len(ps)
    most = 0.0
    for rank, at in enumerate(order):
        most = max(most, min(1.0, ps[at] * (len(ps) - rank)))
        found[at] = most
    return found


def band(values: Sequence[Values], rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """(geometric mean, low, high) as speedups at each point of a curve. values: [trees, seeds] at each."""
    found = []
    for each in values:
        by_tree = _by_tree(each)
        found.append((float(2 ** by_tree.mean()), *_interval(by_tree, rng, DRAWS // 8)))
    return found


def _by_tree(values: Values) -> Values:
    if values.ndim != 2 or not values.size:
        raise ConfigError("there is nothing to compare: record trees in which there is something to find")
    found: Values = values.mean(axis=1)
    return found


def _interval(by_tree: Values, rng: np.random.Generator, draws: int = DRAWS) -> tuple[float, float]:
    """95% interval of the geometric mean, as speedups."""
    drawn = by_tree[rng.integers(len(by_tree), size=(draws, len(by_tree)))].mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(2**low), float(2**high)
