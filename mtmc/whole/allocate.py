"""How the budget of a whole model is spent: on the piece that promises most, a slice at a time. Pure.

What a slice of n evaluations is expected to bring to a piece:

    room      = what the hardware still allows: headroom / best speedup so far, MOST_ROOM at most
    closed    = n / (n + HALF): the part of that room, in logarithms, that n evaluations close, a half of it by HALF
    faith     = 1/2 to the power of the slices in a row that have brought nothing
    expected  = room ^ (closed x faith), the further speedup
    gain      = share / best speedup so far x (1 - 1 / expected), of the model's time

Each slice goes to the piece with the greatest gain; where none promises LEAST_GAIN of the model's time, the rest of the
budget is left. So a piece with a large share and far from its bound comes first, and one without progress waits until
the others promise less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

HALF = 8
"""Evaluations that close half of the room, in logarithms."""
MOST_ROOM = 16.0
"""Bounds are crude: of launches that the host cannot make fast enough, one could believe in any speedup."""
LEAST_GAIN = 0.001
PROGRESS = 1.005
"""A slice that makes a piece faster by less has brought nothing."""


@dataclass(frozen=True)
class Prospect:
    """A piece as far as it has come. share: of the model's time before any search. headroom: see `Site.headroom`.

    spent: evaluations. speedup: of the best version so far, at least 1. barren: slices in a row that brought nothing.
    finished: whether its search has nothing left to try.
    """

    share: float
    headroom: float
    spent: int = 0
    speedup: float = 1.0
    barren: int = 0
    finished: bool = False

    def after(self, evaluations: int, speedup: float, finished: bool = False) -> Prospect:
        """The same piece after a slice. evaluations, speedup: in all, of its best version."""
        progress = speedup >= PROGRESS * self.speedup
        return replace(
            self,
            spent=evaluations,
            speedup=max(1.0, speedup),
            barren=0 if progress else self.barren + 1,
            finished=finished,
        )


def expected_speedup(prospect: Prospect, evaluations: int) -> float:
    """How many times faster than now a piece is expected to be after so many more evaluations."""
    room = min(MOST_ROOM, max(1.0, prospect.headroom / prospect.speedup))
    closed = evaluations / (evaluations + HALF)
    return float(room ** (closed * 0.5**prospect.barren))


def expected_gain(prospect: Prospect, evaluations: int) -> float:
    """The part of the model's time that so many more evaluations of a piece are expected to save."""
    return prospect.share / prospect.speedup * (1 - 1 / expected_speedup(prospect, evaluations))


def next_slice(prospects: Sequence[Prospect], evaluations: int) -> int | None:
    """Index of the piece that gets the next slice; None where none promises enough."""
    open_ones = [index for index, each in enumerate(prospects) if not each.finished]
    if not open_ones or evaluations < 1:
        return None
    best = max(open_ones, key=lambda index: expected_gain(prospects[index], evaluations))
    return best if expected_gain(prospects[best], evaluations) >= LEAST_GAIN else None


def slice_size(budget: int, pieces: int) -> int:
    """Evaluations of one slice: so many that each piece could have two, at least 4 (the first is the root's), 16 at most."""
    return min(16, max(4, budget // max(1, 2 * pieces)))
