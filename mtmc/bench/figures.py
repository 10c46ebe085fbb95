"""figures: what the tables of a benchmark are made of. Pure.

    fast_p(rows, p) = (problems that are correct and whose speedup is above p) / (all problems)      KernelBench's metric
    mean            = (s_1 + ... + s_n) / n
    geometric mean  = (s_1 ... s_n) ^ (1 / n)

over the n problems that have a speedup s_i, which is said beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtmc.bench.row import AUTOTUNE, BETTER, COMPILE, EAGER, LIBRARY, Row

BASELINES = (EAGER, COMPILE, AUTOTUNE, LIBRARY)


@dataclass(frozen=True)
class Speedups:
    """Over one baseline. count: problems that have one. mean, geometric: None where count is 0. slower: below 0.98.

    least, worst: the smallest speedup, and the problem that has it; None and "" where count is 0.
    """

    count: int
    mean: float | None
    geometric: float | None
    least: float | None
    slower: int
    worst: str = ""


@dataclass(frozen=True)
class LevelFigures:
    """One level, or all together.

    correct, triton: problems, see `Row`. fast_1, fast_2: over eager, of all problems, 0 to 1. over: by baseline,
        and over the better of torch.compile's modes.
    roofline: mean over the problems where it is known and whose work is done. failed: problems without a result.
    """

    level: str
    problems: int
    correct: int
    triton: int
    fast_1: float
    fast_2: float
    over: dict[str, Speedups]
    roofline: float | None
    evaluations: int
    gpu_seconds: float
    seconds: float
    tokens: int
    usd: float
    failed: int


SLOWER = 0.98
"""A speedup below this is a loss: less than that is the spread of a measurement."""

DISSOLVED = 10.0
"""Fraction of the roofline above which a version does not do the work that the reference states: algebra has shown that its
result needs next to none. (A product of fp32 numbers in TF32, where the reference has those, reaches 3.)"""


def fast_p(rows: Sequence[Row], p: float, baseline: str = EAGER) -> float:
    """Fraction of all problems that are correct and faster than `p` times the baseline, 0 to 1; 0 without problems.

    Strictly faster: what hands back the reference itself is not in fast_1.
    """
    fast = sum(1 for row in rows if (gain := row.speedup(baseline)) is not None and gain > p)
    return fast / len(rows) if rows else 0.0


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None of nothing."""
    return sum(values) / len(values) if values else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of numbers above 0; None of nothing."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def dissolved(row: Row) -> bool:
    """Whether the version that is handed back had next to nothing to do, see `DISSOLVED`."""
    return row.correct and row.roofline is not None and row.roofline > DISSOLVED


def speedups(rows: Iterable[Row], baseline: str) -> Speedups:
    """What is gained over a baseline, where that is known."""
    by_row = [(gain, row.id) for row in rows if (gain := row.speedup(baseline)) is not None]
    known = [gain for gain, _ in by_row]
    slower = sum(1 for gain in known if gain < SLOWER)
    least, worst = min(by_row, default=(None, ""))
    return Speedups(len(known), mean(known), geometric_mean(known), least, slower, worst)


def level_figures(level: str, rows: Sequence[Row]) -> LevelFigures:
    """The figures of some problems, named `level`."""
    return LevelFigures(
        level=level,
        problems=len(rows),
        correct=sum(row.correct for row in rows),
        triton=sum(row.triton for row in rows),
        fast_1=fast_p(rows, 1.0),
        fast_2=fast_p(rows, 2.0),
        over={name: speedups(rows, name) for name in (*BASELINES, BETTER)},
        roofline=mean(
            [row.roofline for row in rows if row.roofline is not None and row.correct and not dissolved(row)]
        ),
        evaluations=sum(row.evaluations for row in rows),
        gpu_seconds=sum(row.gpu_seconds for row in rows),
        seconds=sum(row.seconds for row in rows),
        tokens=sum(row.tokens for row in rows),
        usd=sum(row.usd for row in rows),
        failed=sum(row.failure is not None for row in rows),
    )


def by_level(rows: Sequence[Row]) -> list[LevelFigures]:
    """One entry a level, in the order in which they come, and one of all together where there are several."""
    levels = list(dict.fromkeys(row.level for row in rows))
    figures = [level_figures(level, [row for row in rows if row.level == level]) for level in levels]
    return [*figures, level_figures("all", rows)] if len(levels) > 1 else figures
