"""Small and odd shapes of a task that declares none, by trial: shrink its integers while it still runs.

A trial constructs the reference and runs it once: on the CPU under limits that stop it before it takes memory or time,
or, to learn whether a larger point runs at all, on the meta device, which holds no data. So a large task never runs at
its full shapes with data. All orders are fixed and effort is counted in work done, not in seconds, so the same file
always gives the same shapes.

Some references stay large whatever is shrunk: the widths of a deep network are written into its layers. They get the
smallest shapes that run at all, under the limits `LARGE`: library calls do such shapes in a second, and a kernel that is
interpreted there for too long runs into the evaluator's limit of time, which its outcome says.

Integers up to `KEPT` are left alone: they are kernel sizes, strides, dimension numbers.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.constants import INPUT_FUNCTIONS, distinct_constants

if TYPE_CHECKING:
    from mtmc.task.reference import Footprint, State

_log = logging.getLogger(__name__)

KEPT = 8
LARGEST, LEAST = 256, 4
"""Small shapes are powers of two in this range."""
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
ACTIVATIONS = 2**22
"""Elements of the largest tensor of a forward, there."""
EFFORT = 20_000
"""What the trials of one set of shapes may take in all, in the unit of `Meter.effort`: about 2 s at worst."""
EFFORT_LARGE = 60_000
"""The same, where only large shapes run."""
CALLS = 5_000
"""ATen calls of one trial."""
HELD_OUT, HELD_OUT_LARGE = 3, 2
_NO_LIMITS = (sys.maxsize, sys.maxsize)
_CANDIDATES = 6
_MOST_TIED = 3
_EFFORT_OF_A_FILE = 10
_STARTS: tuple[Callable[[int], int], ...] = (
    lambda small: small // 2 + 1,
    lambda small: small + 1,
    lambda small: 3,
    lambda small: small + 3,
    lambda small: small + 7,
)
"""Where the odd sizes of each held-out set begin: somewhat smaller, just above, least; the rest replace failures."""
_STARTS_LARGE = (1, 3, 4)
_MEND = (
    "Add to the file `def get_small_inputs():` that returns what get_inputs() returns at small shapes (at most "
    f"{PREFERRED[0]} elements a tensor), and `def get_small_init_inputs():` if the constructor's arguments change too"
)

Point = dict[str, int]


@dataclass(frozen=True)
class Live:
    """A live module that the text was printed from, for which shapes are sought.

    state: its weights. agrees: whether text and module give the same at a set of shapes.
    """

    state: State
    agrees: Callable[[Variant], bool]


def derive_small(source: str, name: str, live: Live | None = None) -> Variant:
    """The small shapes of a task: its module-level integers above `KEPT` as powers of two, as large as stays cheap.

    live: where the text stands for a live module. Then all its integers are sizes, and as its weights cannot shrink,
    shapes that are dear to interpret are better than none.
    Raises: TaskError where no small shapes run; it gives the reason and says how to add get_small_inputs().
    """
    full = _sizes(source, live)
    search = _Search(source, name, Variant("small"), live)
    if live is None:
        search.model = search.weigh(full, None, free=True)
    found = search.small(full)
    if found is None and search.other_ways:
        search.model, search.effort = None, EFFORT  # Better another way than none.
        found = search.small(full)
    if found is not None:
        return found
    raise TaskError(
        f"task {name} has no small inputs, and none were found by shrinking its integers "
        f"({', '.join(full) or f'none above {KEPT}'}); last tried: {search.last_failure}. {_MEND}"
    )


def derive_held_out(
    source: str, small: Variant, name: str, count: int = HELD_OUT, live: Live | None = None
) -> tuple[Variant, ...]:
    """Up to `count` sets of shapes near the small ones: odd sizes where the reference allows, distinct where it allows.

    Where the small inputs do not follow the module-level integers (a get_small_inputs() with numbers of its own), they
    are derived from get_inputs() instead. Fewer than `count`, with a warning, where the integers leave no more.
    """
    point = {**_sizes(source, live), **dict(small.constants)}
    variants: list[Variant] = []
    search = _Search(source, name, small, live)
    large = search.large(search.weigh(point, None, free=True))
    count = min(count, HELD_OUT_LARGE) if large else count
    for index in _STARTS_LARGE if large else range(len(_STARTS)):
        found = _Search(source, name, small, live).odd(point, index, large)
        variant = replace(small, label=f"odd{len(variants) + 1}", constants=tuple(found.items()))
        if found != point and all(variant.constants != other.constants for other in variants):
            variants.append(variant)
        if len(variants) == count:
            return tuple(variants)
    if not variants and small.inputs != "get_inputs":
        try:
            return derive_held_out(source, derive_small(source, name), name, count)
        except TaskError as error:
            _log.debug("task %s: no held-out shapes from get_inputs(): %s", name, error)
    mend = "VARIANTS can give them" if live is None else "only example sizes above 1 can be varied"
    _log.warning("task %s: %d of %d held-out sets of shapes found; %s", name, len(variants), count, mend)
    return tuple(variants)


def check_runs(source: str, variant: Variant, name: str) -> None:
    """Run the reference at declared shapes; a warning where they are large. Raises: TaskError if it fails."""
    from mtmc.task.reference import Limits, Meter, TooLargeError, weigh

    try:
        weigh(source, variant, name, meter=Meter(Limits(*ACCEPTED, CALLS)))
    except TooLargeError as error:
        _log.warning("task %s: its %s shapes are large (%s): slow to interpret", name, variant.label, error)


class _OtherWay(Exception):
    """At these shapes the reference has other layers, or its forward makes other calls."""


@dataclass
class _Search:
    """The trials of one derivation: what they may still cost, and how the last one failed.

    base: the shapes that points are changes of (its functions make the inputs).
    model: what the reference takes at the shapes that others should be like, where that is known.
    other_ways: whether points that are not like it are merely left out. seen: trials without data.
    """

    source: str
    name: str
    base: Variant
    live: Live | None = None
    effort: float = EFFORT
    last_failure: str = "nothing"
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
        return Variant("small", tuple((key, value) for key, value in point.items() if value != full[key]))

    def _small(self, full: Point) -> Point | None:
        poor, poor_points = (math.inf, 0), list[Point]()  # too inexact to compare well; the best of them if all are
        for limits, points in self.tiers(full):
            fallback = None
            for point in points:
                found = self.weigh(point, limits)
                if found is None or not self.alike(point, found):
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
                _log.warning("task %s: rounding alone makes an error of %.1e at its small shapes", self.name, poor[0])
                return poor_points[poor[1]]
        return None

    def _layers(self, full: Point, key: str) -> bool:
        """Whether an integer says how many layers there are or how often a loop is run."""
        found = self.weigh({**full, key: full[key] - 1}, None, free=True)
        return found is not None and not self.alike(full, found)

    def tiers(self, full: Point) -> Iterator[tuple[tuple[int, int], Iterable[Point]]]:
        """Limits and the points to try under them, the best first."""
        for limits in (PREFERRED, ACCEPTED):
            yield limits, chain(_ladder(full), self.one_by_one(full, limits))
        if self.live is not None:
            yield _NO_LIMITS, (*reversed(list(_ladder(full))), full)
            return
        self.effort = EFFORT_LARGE
        points = list(_ladder(full))
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

    def own_error(self, point: Point, found: Footprint) -> float:
        """The reference's own rounding error at a large point, else 0.

        A deep network of batch norms over a few elements makes any rounding error large: no version could be told right or
        wrong there.
        """
        from mtmc.task.reference import own_error

        if self.live is not None or not self.large(found):
            return 0.0
        return own_error(self.source, replace(self.base, constants=tuple(point.items())), self.name)

    def alike(self, point: Point, found: Footprint) -> bool:
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
        starts = [*reversed(list(_ladder(full))), full]
        point = next((start for start in starts if self.weigh(start, None)), None)
        if point is None:
            return
        for keys in _alone_and_tied(full):
            for value in _smaller(point[keys[0]], least):
                changed = {**point, **dict.fromkeys(keys, value)}
                found = self.weigh(changed, None)
                if found and self.alike(changed, found):
                    point = changed
                    if self.fits(found, limits):
                        yield point
                    break

    @staticmethod
    def large(found: Footprint | None) -> bool:
        """Whether such shapes are better tried without data."""
        return found is not None and (found.elements > ACCEPTED[0] or found.macs > ACCEPTED[1])

    def odd(self, small: Point, index: int, large: bool) -> Point:
        """`small` with as many odd sizes as the reference allows, near the sizes that `_STARTS[index]` says.

        large: they are tried on the meta device; only the outcome runs with data.
        """
        if large:
            self.effort = EFFORT_LARGE // 10
        base = self.weigh(small, None if large else _NO_LIMITS)
        if base is None:
            return small
        self.model, self.other_ways = self.model or base, True
        trial = _Trial(self, base, large)
        point = dict(small)
        for _ in range(2):  # What one size forbids another, the second round may allow.
            for key in sorted(small, key=lambda key: -small[key]):
                if not point[key] % 2 or point[key] == small[key]:
                    trial.first(point, _odd_changes(point, small, key, index))
        for key in small:
            if any(point[key] == point[other] and small[key] == small[other] for other in small if other != key):
                trial.first(point, _apart(point, small, key, index))
        if not large:
            return point
        return point if self.weigh(point, trial.limits, free=True) else small


class _Trial:
    """Changes to a point, tried in turn. large: without data."""

    def __init__(self, search: _Search, base: Footprint, large: bool) -> None:
        self._search, self._base, self._large = search, base, large
        self._shapes = base.shapes
        self.limits = (2 * max(base.elements, PREFERRED[0]), 2 * max(base.macs, PREFERRED[1]))

    def first(self, point: Point, candidates: Iterable[Point]) -> None:
        """Make the first of the changes that runs, differs from what there was, and says something."""
        for changes in candidates:
            found = self._search.weigh({**point, **changes}, None if self._large else self.limits)
            if found is None or found.shapes == self._shapes or (found.constant and not self._base.constant):
                continue
            if not self._search.alike(point, found):
                if self._large:
                    return  # an integer that says how many layers there are
                continue
            if self._search.fits(found, self.limits):
                point.update(changes)
                self._shapes = found.shapes
                return


def _sizes(source: str, live: Live | None) -> Point:
    """The integers that may be changed, each under one name. Of a live module's text these are all at module level."""
    found = distinct_constants(source)
    if live is not None:
        return {key: value for key, value in found.items() if value > 1 and not key.startswith(INPUT_FUNCTIONS)}
    return {key: value for key, value in found.items() if value > KEPT}


def _ladder(full: Point) -> Iterator[Point]:
    """Schematic points, the largest first: under a falling cap, distinct integers kept distinct, then merely capped."""
    cap = LARGEST
    while cap >= LEAST:
        distinct: Point = {}
        last, last_full = 2 * cap, None
        for key in sorted(full, key=lambda key: -full[key]):
            if full[key] != last_full:
                most = _power_of_two(full[key])
                last, last_full = max(min(LEAST, most), min(most, last // 2)), full[key]
            distinct[key] = last
        yield {key: distinct[key] for key in full}
        yield {key: min(_power_of_two(value), cap) for key, value in full.items()}
        cap //= 2


def _smaller(value: int, least: int) -> Iterator[int]:
    """Values to try instead of a larger one, from `least`: powers of two and its own halves."""
    sizes = {2**k for k in range(9)} | {value >> k for k in range(1, value.bit_length())}
    yield from sorted(size for size in sizes if least <= size < value)


def _alone_and_tied(full: Point) -> Iterator[tuple[str, ...]]:
    """Each integer, the largest first, and behind each value the integers that have it, where these are several."""
    for value in sorted(set(full.values()), reverse=True):
        keys = tuple(key for key in full if full[key] == value)
        yield from ((key,) for key in keys)
        if len(keys) > 1:
            yield keys


def _odd_changes(point: Point, small: Point, key: str, index: int) -> Iterator[Point]:
    """Changes of one size, the best first: odd and unlike the others; odd with its equals; odd; odd times another's.

    With as few of its equals as will do: sizes that only happen to be equal should not stay so.
    """
    value = min(small[key], LARGEST)
    start = _STARTS[index](value) | 1
    odd = range(start, start + 64, 2)
    unlike = [size for size in odd if size not in point.values()][:_CANDIDATES]
    yield from ({key: size} for size in unlike)
    tied = [other for other in small if small[other] == small[key] and other != key]
    for count in range(1, min(len(tied), _MOST_TIED) + 1):
        for others in combinations(tied, count):
            yield from (dict.fromkeys((key, *others), size) for size in unlike[:2])
    if tied:
        yield from (dict.fromkeys((key, *tied), size) for size in unlike)
    yield from ({key: size} for size in (*odd[:2], 3, 5) if size != point[key])
    if point[key] == small[key]:
        yield from ({key: size} for size in _multiples(point, value))


def _apart(point: Point, small: Point, key: str, index: int) -> Iterator[Point]:
    """Changes of one size alone that leave it unlike all others: two sizes that are equal wherever a reference is looked at
    are taken for one."""
    value = min(small[key], LARGEST)
    start = _STARTS[index](value)
    near = (size for size in (*range(start | 1, start + 32, 2), *range(start, start + 32)) if size > 0)
    yield from ({key: size} for size in islice((size for size in near if size not in point.values()), _CANDIDATES))
    yield from ({key: size} for size in _multiples(point, value))


def _multiples(point: Point, value: int) -> Iterator[int]:
    """Odd times another's size, unlike all others."""
    factors = sorted({other for other in (*point.values(), 2, 4, 8) if 1 < other <= value})
    yield from (factor * odd for odd in (3, 5) for factor in factors if factor * odd not in point.values())


def _power_of_two(value: int) -> int:
    """The largest power of two that is not above `value` (at least 1)."""
    return 1 << (value.bit_length() - 1)
