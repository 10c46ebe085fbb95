"""trials: running a reference at points, to learn whether it runs there, what that takes and how exact it is.

A trial constructs the reference and runs it once: on the CPU under limits that stop it before it takes memory or time,
or, to learn whether a larger point runs at all, on the meta device, which holds no data. All orders are fixed and effort
is counted in work done, not in seconds.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.points import LEAST, Point, alone_and_tied, apart, ladder, odd_changes, smaller

if TYPE_CHECKING:
    from mtmc.task.mold import Weights
    from mtmc.task.reference import Footprint

_log = logging.getLogger(__name__)

PREFERRED = (2**14, 2**21)
"""Elements of the largest tensor, and multiply-adds of one forward: some hundred programs in the interpreter."""
ACCEPTED = (2**18, 2**26)
"""The same, where no smaller shapes run: the interpreter is done in some seconds."""
DEEP, LARGER, LARGE = (2**27, 2**30), (2**27, 2**33), (2**27, 2**35)
"""The same, where weights cannot be shrunk (of up to 512 MB; the last takes seconds in library calls)."""
COMFORTABLE = 64
"""Sizes to begin with, there. At 32 x 32 the last layers of a residual network are one pixel, and a batch norm over the two
images of a batch makes rounding errors a hundred times larger: results could not be compared."""
OWN_ERROR = 1e-4
"""Norm-wise error of a reference by rounding, there: at most the tolerance of a check."""
GAIN, TRIED_MACS = 4, 2**31
"""A size is raised where that makes this error as many times smaller; multiply-adds of all forwards that look for it."""
SEEDS = (0, 1)
"""Of inputs and weights whose rounding error is found: one alone may be lucky."""
ACTIVATIONS = 2**22
"""Elements of the largest tensor of a forward, there."""
EFFORT = 20_000
"""What the trials of one set of shapes may take in all, in the unit of `Meter.effort`: about 2 s at worst."""
EFFORT_LARGE = 60_000
"""The same, where only large shapes run."""
CALLS = 5_000
"""ATen calls of one trial."""
_NO_LIMITS = (sys.maxsize, sys.maxsize)
_EFFORT_OF_A_FILE = 10


@dataclass(frozen=True)
class Live:
    """A live module that the text was printed from, for which shapes are sought.

    state: its weights. agrees: whether text and module give the same at a set of shapes.
    """

    state: Weights
    agrees: Callable[[Variant], bool]


class _OtherWay(Exception):
    """At these shapes the reference has other layers, or its forward makes other calls."""


@dataclass
class Search:
    """The trials of one derivation: what they may still cost, and how the first and the last one failed.

    base: the shapes that points are changes of (its functions make the inputs).
    first_failure: what the file raised in the first trial that failed, "" where none did.
    few: integers that are left alone, and raised only where results cannot be compared otherwise.
    model: what the reference takes at the shapes that others should be like, where that is known.
    other_ways: whether points that are not like it are merely left out. seen: trials without data.
    """

    source: str
    name: str
    base: Variant
    live: Live | None = None
    few: Point = field(default_factory=dict)
    effort: float = EFFORT
    last_failure: str = "nothing"
    first_failure: str = ""
    model: Footprint | None = None
    other_ways: bool = False
    seen: dict[tuple[tuple[str, int], ...], Footprint | None] = field(default_factory=dict)

    def small(self, full: Point) -> Variant | None:
        """The best small shapes, None where there are none. Integers that change the layers themselves are left alone."""
        try:
            point = self._small(full)
        except _OtherWay:
            self.other_ways = True
            self.effort = EFFORT
            point = self._small({key: full[key] for key in full if not self._layers(full, key)})
        if point is None:
            return None
        return Variant("small", tuple((key, value) for key, value in point.items() if value != full.get(key)))

    def _small(self, full: Point) -> Point | None:
        poor, poor_points = (math.inf, 0), list[Point]()  # too inexact to compare well; the best of them if all are
        for limits, points in self.tiers(full):
            fallback = None
            for point in points:
                found = self.weigh(point, limits)
                if found is None or not self.is_model(point, found):
                    continue
                error = self.own_error(point, found)
                if error > OWN_ERROR:
                    poor = min(poor, (error, len(poor_points)))
                    poor_points.append(point)
                    continue
                if found.macs > ACCEPTED[1] or found.elements > ACCEPTED[0]:
                    macs = found.macs
                    _log.warning("task %s: %d multiply-adds at its small shapes, slow to interpret", self.name, macs)
                if not found.constant:
                    return point
                fallback = fallback or point  # Better than none: this reference may be constant at any shapes.
            if fallback is not None:
                return fallback
            if poor_points:
                point, error = self.steadier(poor_points[poor[1]])
                if error > OWN_ERROR:
                    _log.warning("task %s: rounding alone makes an error of %.1e at its small shapes", self.name, error)
                return point
        return None

    def _layers(self, full: Point, key: str) -> bool:
        """Whether an integer says how many layers there are or how often a loop is run."""
        found = self.weigh({**full, key: full[key] - 1}, None, free=True)
        return found is not None and not self.is_model(full, found)

    def tiers(self, full: Point) -> Iterator[tuple[tuple[int, int], Iterable[Point]]]:
        """Limits and the points to try under them, the best first."""
        for limits in (PREFERRED, ACCEPTED):
            yield limits, chain(ladder(full), self.one_by_one(full, limits))
        if self.live is not None:
            self.effort = max(self.effort, EFFORT)
            alone = reversed(list(self.one_by_one(full, _NO_LIMITS, least=2)))  # where not all can go down together
            every = (*reversed(list(ladder(full))), *alone, full)
            yield _NO_LIMITS, sorted(every, key=lambda point: self.weigh(point, None, free=True) is None)
            return
        self.effort = EFFORT_LARGE
        points = list(ladder(full))
        some = [point for point in points if max(point.values(), default=0) <= COMFORTABLE]
        more = [point for point in reversed(points) if point not in some]
        yield DEEP, (point for point in (*some, *more) if self.fits(self.weigh(point, None), DEEP))
        yield LARGER, reversed(list(self.one_by_one(full, LARGER, least=2)))
        yield LARGE, reversed(list(self.one_by_one(full, LARGE, least=1)))

    def fits(self, found: Footprint | None, limits: tuple[int, int]) -> bool:
        """Whether a trial without data went well and stayed within limits."""
        if found is None:
            return False
        most = ACTIVATIONS if limits in (DEEP, LARGER, LARGE) else limits[0]
        if found.elements <= limits[0] and found.macs <= limits[1] and found.activations <= most:
            return True
        largest = found.elements if found.elements > limits[0] else found.activations
        self.last_failure = f"a tensor of {largest} elements, {found.macs} multiply-adds"
        return False

    def own_error(self, point: Point, found: Footprint | None, thorough: bool = False) -> float:
        """The reference's own rounding error at a large point, else 0.

        A deep network of batch norms over a few elements makes any rounding error large: no version could be told right or
        wrong there. thorough: with all `SEEDS` even where the first one says that it is too large.
        """
        from mtmc.task.reference import own_error

        worst = 0.0
        if self.live is not None or not self.large(found):
            return worst
        variant = replace(self.base, constants=tuple(point.items()))
        for seed in SEEDS:
            worst = max(worst, own_error(self.source, variant, self.name, seed))
            if worst > OWN_ERROR and not thorough:
                break
        return worst

    def steadier(self, point: Point) -> tuple[Point, float]:
        """The point with some sizes of its inputs raised where that makes the reference's rounding error much smaller, and
        this error.

        Mostly it is the batch, which may be too small a number to be varied otherwise: a batch norm over two values makes
        1 and -1 of them however near they are.
        """
        left, before = TRIED_MACS, self.weigh(point, None, free=True)
        error = self.own_error(point, before, thorough=True)
        for key, value in (*self.few.items(), *sorted(point.items(), key=lambda item: item[1])):
            raised = {**point, key: 2 * value if key in point else 2 * LEAST}
            after = self.weigh(raised, None, free=True)
            if not before or not after or before.shapes[:1] == after.shapes[:1]:
                continue  # no size of an input
            if (len(before.shapes), before.calls) != (len(after.shapes), after.calls) or after.macs > left:
                continue
            left -= after.macs
            own = self.own_error(raised, after, thorough=True)
            if GAIN * own <= error:
                point, before, error = raised, after, own
        return point, error

    def is_model(self, point: Point, found: Footprint) -> bool:
        """Whether the reference has as many weights and calls as the model. Raises: _OtherWay for the first that has not."""
        if self.model is None or (len(found.shapes), found.calls) == (len(self.model.shapes), self.model.calls):
            return True
        self.last_failure = f"it has other layers or takes another way at {point}"
        if not self.other_ways:
            raise _OtherWay
        return False

    def weigh(self, point: Point, limits: tuple[int, int] | None, free: bool = False) -> Footprint | None:
        """What the reference takes at `point` on the CPU, or without limits on the meta device; None if it fails.

        free: the trial counts for nothing.
        """
        if self.effort <= 0 and not free:
            return None
        key = tuple(point.items())
        if limits is None and key in self.seen:
            return self.seen[key]
        found = self._weigh(point, limits, free)
        if limits is None:
            self.seen[key] = found
        return found

    def _weigh(self, point: Point, limits: tuple[int, int] | None, free: bool) -> Footprint | None:
        from mtmc.task.reference import Limits, Meter, TooLargeError, weigh

        variant = replace(self.base, constants=tuple(point.items()))
        meter = Meter(Limits(*limits or _NO_LIMITS, CALLS if limits or free else sys.maxsize))
        device, state = "cpu" if limits else "meta", self.live.state if self.live else None
        try:
            found = weigh(self.source, variant, self.name, state=state, device=device, meter=meter)
        except (TaskError, TooLargeError) as error:
            self.last_failure = str(error)
            if isinstance(error, TaskError) and not (device == "meta" and "meta" in self.last_failure.lower()):
                self.first_failure = self.first_failure or f"{error} at {point}"
            return None
        finally:
            self.effort -= 0 if free else _EFFORT_OF_A_FILE + meter.effort
        if not found.finite:
            self.last_failure = "an output holds NaN"
            return None
        if limits and self.live and not self.live.agrees(variant):
            self.last_failure = "the printed module and the live one disagree"
            return None
        return found

    def one_by_one(self, full: Point, limits: tuple[int, int], least: int = LEAST) -> Iterator[Point]:
        """From the least schematic point that runs at all, each integer as small as it goes (to `least`), the largest first.

        Integers that only go down together (height and width, the channels in and out) do so.
        """
        starts = [*reversed(list(ladder(full))), full]
        point = next((start for start in starts if self.weigh(start, None)), None)
        if point is None:
            return
        for keys in alone_and_tied(full):
            for value in smaller(point[keys[0]], least):
                changed = {**point, **dict.fromkeys(keys, value)}
                found = self.weigh(changed, None)
                if found and self.is_model(changed, found):
                    point = changed
                    if self.fits(found, limits):
                        yield point
                    break

    @staticmethod
    def large(found: Footprint | None) -> bool:
        """Whether such shapes are better tried without data."""
        return found is not None and (found.elements > ACCEPTED[0] or found.macs > ACCEPTED[1])

    def odd(self, small: Point, index: int, large: bool) -> Point:
        """`small` with as many odd sizes as the reference allows, near the sizes that `STARTS[index]` says.

        large: they are tried on the meta device; only the outcome runs with data.
        """
        if large:
            self.effort = EFFORT_LARGE // 10
        base = self.weigh(small, None if large else _NO_LIMITS)
        if base is None:
            return small
        self.model, self.other_ways = self.model or base, True
        trial = _Changes(self, base, large)
        point = dict(small)
        for _ in range(2):  # What one size forbids another, the second round may allow.
            for key in sorted(small, key=lambda key: -small[key]):
                if not point[key] % 2 or point[key] == small[key]:
                    trial.first(point, odd_changes(point, small, key, index))
        for key in small:
            if any(point[key] == point[other] and small[key] == small[other] for other in small if other != key):
                trial.first(point, apart(point, small, key, index))
        if not large:
            return point
        return point if self.weigh(point, trial.limits, free=True) else small


class _Changes:
    """Changes to a point, tried in turn. large: without data."""

    def __init__(self, search: Search, base: Footprint, large: bool) -> None:
        self._search, self._base, self._large = search, base, large
        self._shapes = base.shapes
        self.limits = (2 * max(base.elements, PREFERRED[0]), 2 * max(base.macs, PREFERRED[1]))

    def first(self, point: Point, candidates: Iterable[Point]) -> None:
        """Make the first of the changes that runs, differs from what there was, and says something."""
        for changes in candidates:
            found = self._search.weigh({**point, **changes}, None if self._large else self.limits)
            if found is None or found.shapes == self._shapes or (found.constant and not self._base.constant):
                continue
            if not self._search.is_model(point, found):
                if self._large:
                    return  # an integer that says how many layers there are
                continue
            if self._search.fits(found, self.limits):
                point.update(changes)
                self._shapes = found.shapes
                return
