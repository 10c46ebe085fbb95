"""crossed: cross-validation by task: each task is predicted by a model that has seen none of its transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtmc.agents.policies.learned.features import HEURISTIC
from mtmc.agents.policies.learned.gain.boosted import Boosted
from mtmc.rl.gain.data import Rows
from mtmc.rl.gain.fit import fit, task_folds
from mtmc.rl.gain.settings import GainSettings

Doubles = NDArray[np.float64]
LEAST_CHOICES = 3
"""Known actions of a version from which on their order says something."""


@dataclass(frozen=True, eq=False)
class Fold:
    """model: of one fold. tasks: numbers of the trees that it has not seen."""

    model: Boosted
    tasks: tuple[int, ...]


@dataclass(frozen=True)
class Figures:
    """How good predictions are, all log2.

    error: root of the mean square error; nothing: of predicting no gain. explained: share of the variance. order: rank
    correlation with the gains within a version, mean over versions. lost: what is lost, in the mean over versions, where the
    action of the greatest prediction is taken in place of the best one; lost_heuristic: by the heuristic's opinion,
    lost_drawn: by drawing one. within: share of the gains that are within one spread of their prediction; within_two: of
    two. rows, versions: what this is over.
    """

    rows: int
    versions: int
    error: float
    nothing: float
    explained: float
    order: float
    lost: float
    lost_heuristic: float
    lost_drawn: float
    within: float
    within_two: float


def crossed(rows: Rows, settings: GainSettings, tell: Callable[[str], None]) -> list[Fold]:
    """A model for each of `settings.folds` folds. Raises: ConfigError where there are fewer tasks than folds."""
    found = []
    for number, held_out in enumerate(task_folds(rows, settings.folds, settings.seed)):
        tell(f"fold {number + 1} of {settings.folds}: {int((~held_out).sum())} transitions")
        model = fit(rows.of(~held_out), settings, number + 1)
        found.append(Fold(model, tuple(np.unique(rows.task[held_out]).tolist())))
    return found


def crossed_figures(rows: Rows, folds: list[Fold], clip: float) -> Figures:
    """What the folds' models say of the tasks that they have not seen. clip: see `GainSettings`."""
    mean, spread = np.zeros(len(rows)), np.zeros(len(rows))
    for fold in folds:
        mine = np.isin(rows.task, fold.tasks)
        mean[mine], spread[mine] = fold.model.predict(rows.features[mine])
    return figures(rows, mean, spread, clip)


def figures(rows: Rows, mean: Doubles, spread: Doubles, clip: float) -> Figures:
    """Figures of some predictions. mean, spread: [rows]. clip: of the gains that they are held against."""
    gains = np.clip(rows.gains, -clip, clip)
    off = mean - gains
    opinion = rows.features[:, len(rows.state_names) + rows.action_names.index(HEURISTIC)]
    versions = list(_versions(rows))
    lost = [
        [float(gains[some].max() - gains[some][by[some].argmax()]) for by in (mean, opinion)]
        + [float(gains[some].max() - gains[some].mean())]
        for some in versions
    ]
    orders = [found for some in versions if (found := rank_correlation(mean[some], gains[some])) is not None]
    by_mean, by_opinion, drawn = np.asarray(lost).mean(axis=0) if lost else (0.0, 0.0, 0.0)
    return Figures(
        rows=len(rows),
        versions=len(versions),
        error=float(np.sqrt((off**2).mean())),
        nothing=float(np.sqrt((gains**2).mean())),
        explained=float(1 - (off**2).mean() / gains.var()) if gains.var() else 0.0,
        order=float(np.mean(orders)) if orders else 0.0,
        lost=float(by_mean),
        lost_heuristic=float(by_opinion),
        lost_drawn=float(drawn),
        within=float((np.abs(off) <= spread).mean()),
        within_two=float((np.abs(off) <= 2 * spread).mean()),
    )


def _versions(rows: Rows) -> Iterator[NDArray[np.intp]]:
    """Row numbers of each version that has `LEAST_CHOICES` known actions or more."""
    key = rows.task * (int(rows.node.max()) + 1) + rows.node
    order = np.argsort(key, kind="stable")
    for some in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(some) >= LEAST_CHOICES:
            yield some


def rank_correlation(one: Doubles, other: Doubles) -> float | None:
    """Spearman's rho; None where either has no order at all."""
    first, second = _ranks(one), _ranks(other)
    if not first.std() or not second.std():
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Doubles) -> Doubles:
    """Ranks, the mean of their ranks for equal ones."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Doubles = (ends - (counts - 1) / 2)[place]
    return found
