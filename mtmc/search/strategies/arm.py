"""Arm: the values that one choice has given so far, and a draw from what it may give on average (Thompson sampling)."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from mtmc.search.strategies.common import is_failure


@dataclass(slots=True)
class Arm:
    """Sums over values, from which mean and variance follow whatever range they are then seen in.

    count: values; failures: how many of them were failures; total and squares: sum of the others, and of their squares.
    """

    count: int = 0
    failures: int = 0
    total: float = 0.0
    squares: float = 0.0

    def note(self, value: float) -> None:
        """One value more."""
        self.count += 1
        if is_failure(value):
            self.failures += 1
        else:
            self.total += value
            self.squares += value * value

    def moments(self, low: float, high: float) -> tuple[float, float]:
        """Mean, and sum of squared differences from it, of the values as 0 to 1 of `low` to `high`; failures are 0, and
        right values 0.5 where the range is one point. (0, 0) without values."""
        if self.count == 0:
            return 0.0, 0.0
        right = self.count - self.failures
        span = high - low
        if span <= 0:
            total, squares = 0.5 * right, 0.25 * right
        else:
            total = (self.total - right * low) / span
            squares = (self.squares - 2.0 * low * self.total + right * low * low) / span**2
        mean = total / self.count
        return mean, max(0.0, squares - self.count * mean * mean)


def thompson(
    chance: random.Random, count: int, mean: float, squares: float, expected: float, spread: float, weight: float = 1.0
) -> float:
    """A draw of the mean that an arm of normal values has, given those it has given so far.

    The posterior is normal-inverse-gamma (Murphy 2007, "Conjugate Bayesian analysis of the Gaussian distribution"):

        k = weight + n,  m = (weight expected + n mean) / k,  nu = weight + n
        nu s2 = weight spread^2 + squares + weight n (mean - expected)^2 / k
        variance ~ nu s2 / chi2(nu),  draw ~ Normal(m, variance / k)

    count: n. mean, squares: see `Arm.moments`. expected, spread: mean and standard deviation before any value is known,
    which count as much as `weight` values.
    """
    nu = weight + count
    centre = (weight * expected + count * mean) / nu
    scatter = weight * spread**2 + squares + weight * count * (mean - expected) ** 2 / nu
    variance = scatter / chance.gammavariate(nu / 2.0, 2.0)
    return chance.gauss(centre, math.sqrt(variance / nu))
