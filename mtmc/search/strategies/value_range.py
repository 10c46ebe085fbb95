"""The range of a tree's values: what makes 0 to 1 of log2 speedups, so that no formula hangs on how long a kernel runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mtmc.search.strategies.base import NodeT, TreeState
from mtmc.search.strategies.common import is_failure


@dataclass
class RangedState(TreeState[NodeT]):
    """low, high: least and greatest value of a right version so far."""

    low: float = math.inf
    high: float = -math.inf


def note_value(state: RangedState[NodeT], value: float) -> None:
    """Widen the range of values; a failure is no value."""
    if not is_failure(value):
        state.low = min(state.low, value)
        state.high = max(state.high, value)


def norm(state: RangedState[NodeT], value: float) -> float:
    """A right version's value (or a mean of such) as 0 to 1 of the tree's range; 0.5 where that is one point."""
    if state.high <= state.low:
        return 0.5
    return (value - state.low) / (state.high - state.low)
