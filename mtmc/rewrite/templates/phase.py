"""phase: the taps of a transposed convolution that positions with the same remainder by the stride see."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """Which taps the positions of a transposed convolution see that have the same remainder by the stride s, along one
    dimension: tap t with dilation d reaches a position at the remainder t d. So remainders that g = gcd(s, d) does not
    divide have none, and the others each `step`-th tap, s / g, from the one on that the remainder / g times `inverse`, of
    d / g by `step`, tells. reach: how many elements of the operand lie between two of these taps, d / g.
    """

    shared: int
    step: int
    inverse: int
    reach: int

    @classmethod
    def of(cls, stride: int | None, dilation: int | None) -> Phase | None:
        """None where one of them is not the same at all shapes."""
        if stride is None or dilation is None:
            return None
        shared = math.gcd(stride, dilation)
        step, reach = stride // shared, dilation // shared
        return cls(shared, step, pow(reach, -1, step) if step > 1 else 0, reach)
