"""headroom: evaluations that searches have left, shared among the problems that are still below their bound.

    left = sum over the problems that have ended of (budget - evaluations spent), at least 0
    headroom of a problem = log2(target / r)       r: fraction of the roofline that its best version reaches
    its share of `left` = headroom / sum of all headrooms, in whole evaluations by the largest remainders

target is `budget.roofline`, or 1: so a problem that may still double its speed gets twice the evaluations of one that may
gain 1.41 times. A problem has headroom whose search has ended for want of evaluations alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mtmc.bench.row import PASSING, Row
from mtmc.search.budget import Budget, evaluations_spent


def left(rows: Sequence[Row], spent: Mapping[str, int], budget: Budget) -> int:
    """Evaluations that problems have left together, less those that were shared out before.

    spent: by id of the problem. A problem that failed and may be tried again keeps its own.
    """
    ended = [row for row in rows if row.failure is None or row.failure.kind not in PASSING]
    return max(0, sum(budget.evaluations - spent[row.id] for row in ended))


def headroom(row: Row, budget: Budget) -> float:
    """log2 of the speedup that a problem may still gain, 0 where its search has not ended for want of evaluations, or where
    nothing is known of its bound."""
    target = budget.roofline or 1.0
    if row.failure is not None or row.finished != evaluations_spent(row.evaluations):
        return 0.0
    if row.roofline is None or not 0 < row.roofline < target:
        return 0.0
    return math.log2(target / row.roofline)


def shares(rows: Sequence[Row], budget: Budget, count: int) -> dict[str, int]:
    """How many evaluations more each problem gets of `count`, by id; those that get none are not there. Their sum is
    `count`, unless no problem has headroom."""
    rooms = {row.id: room for row in rows if (room := headroom(row, budget)) > 0}
    total = sum(rooms.values())
    exact = {name: count * room / total for name, room in rooms.items()}
    given = {name: math.floor(each) for name, each in exact.items()}
    rest = sorted(exact, key=lambda name: (given[name] - exact[name], name))[: count - sum(given.values())]
    return {name: each for name in exact if (each := given[name] + (name in rest)) > 0}
