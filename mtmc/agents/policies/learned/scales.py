"""scales: sizes, times and ratios as small numbers: logarithms to base 2."""

from __future__ import annotations

import math
from collections.abc import Callable


def log(value: float) -> float:
    """log2 of a value above 0; 0 for any other."""
    return math.log2(value) if value > 0 else 0.0


def log1(value: float) -> float:
    """log2 of 1 + a value; 0 for one below 0."""
    return math.log2(1.0 + max(0.0, value))


def signed(scale: Callable[[float], float], value: float) -> float:
    """A value that may be negative: the scale of its size, with its sign."""
    return math.copysign(scale(abs(value)), value)


def ratio(above: float, below: float) -> float:
    """log2 of a ratio, 0 where either is not known."""
    return math.log2(above / below) if above > 0 and below > 0 else 0.0


def mebi(size: float) -> float:
    """Of bytes: log2 of 1 + MiB, / 4."""
    return log1(size / 2**20) / 4


def giga(flops: float) -> float:
    """Of flops: log2 of 1 + Gflop, / 4."""
    return log1(flops / 1e9) / 4
