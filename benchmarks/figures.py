"""Statistics and Markdown tables of the benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def geometric_mean(values: Sequence[float]) -> float:
    """n-th root of the product. Raises: ValueError for no values, or one that is not above 0."""
    if not values or min(values) <= 0:
        raise ValueError(f"a geometric mean needs values above 0, got {list(values)}")
    return math.exp(statistics.fmean(math.log(value) for value in values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` (0 to 100) of the values are below, straight between the two nearest.

    Raises: ValueError for no values.
    """
    if not values:
        raise ValueError("a percentile needs values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> float:
    """(90th - 10th percentile) / median: how far repeated measurements lie apart."""
    return (percentile(values, 90) - percentile(values, 10)) / statistics.median(values)


def ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[start]]:
            for place in order[start:end]:
                found[place] = (start + 1 + end) / 2
            start = end
    return found


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation, -1 to 1; None where there are fewer than two pairs or one side is all equal."""
    if len(first) != len(second):
        raise ValueError(f"a correlation needs pairs, got {len(first)} and {len(second)} values")
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(ranks(first), ranks(second))


def row(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def header(*cells: str) -> str:
    """The first two lines of a Markdown table."""
    return f"{row(*cells)}\n|{'---|' * len(cells)}"
