"""Small and odd shapes of a task that declares none, by trial: shrink its module-level integers while it still runs.

A trial constructs the reference and runs it once: on the CPU under limits that stop it before it takes memory or time,
or, to learn whether a larger point runs at all, on the meta device, which holds no data. So nothing ever runs at the
full shapes with data. All orders are fixed and effort is counted in work done, not in seconds, so the same file always
gives the same shapes.

Integers up to `KEPT` are left alone: they are kernel sizes, strides, dimension numbers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.constants import distinct_constants

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
EFFORT = 20_000
"""What the trials of one set of shapes may take in all, in the unit of `Meter.effort`: about 2 s at worst."""
CALLS = 5_000
"""ATen calls of one trial."""
HELD_OUT = 3
_NO_LIMITS = (sys.maxsize, sys.maxsize)
_CANDIDATES = 6
_EFFORT_OF_A_FILE = 10
_STARTS: tuple[Callable[[int], int], ...] = (
    lambda small: small // 2 + 1,
    lambda small: small + 1,
    lambda small: 3,
    lambda small: small + 3,
    lambda small: small + 7,
)
"""Where the odd sizes of each held-out set begin: somewhat smaller, just above, least; the rest replace failures."""
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
    for limits in (PREFERRED, ACCEPTED) if live is None else (PREFERRED, ACCEPTED, _NO_LIMITS):
        points = chain(_ladder(full), search.one_by_one(full, limits))
        fallback = None
        for point in points if limits != _NO_LIMITS else (*reversed(list(_ladder(full))), full):
            found = search.weigh(point, limits)
            if found is None:
                continue
            variant = Variant("small", tuple((key, value) for key, value in point.items() if value != full[key]))
            if limits == _NO_LIMITS:
                _log.warning("task %s: %d multiply-adds at its small shapes, slow to interpret", name, found.macs)
            if not found.constant:
                return variant
            fallback = fallback or variant  # Better than none: this reference may be constant at any shapes.
        if fallback is not None:
            return fallback
    raise TaskError(
        f"task {name} has no small inputs, and none were found by shrinking its module-level integers "
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
    for index in range(len(_STARTS)):
        found = _Search(source, name, small, live).odd(point, index)
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


@dataclass
class _Search:
    """The trials of one derivation: what they may still cost, and how the last one failed.

    base: the shapes that points are changes of (its functions make the inputs).
    """

    source: str
    name: str
    base: Variant
    live: Live | None = None
    effort: float = EFFORT
    last_failure: str = "nothing"

    def weigh(self, point: Point, limits: tuple[int, int] | None) -> Footprint | None:
        """What the reference takes at `point` on the CPU, or without limits on the meta device; None if it fails."""
        from mtmc.task.reference import UNLIMITED, Limits, Meter, TooLargeError, weigh

        if self.effort <= 0:
            return None
        variant = replace(self.base, constants=tuple(point.items()))
        meter = Meter(Limits(*limits, CALLS) if limits else UNLIMITED)
        device, state = "cpu" if limits else "meta", self.live.state if self.live else None
        try:
            found = weigh(self.source, variant, self.name, state=state, device=device, meter=meter)
        except (TaskError, TooLargeError) as error:
            self.last_failure = str(error)
            return None
        finally:
            self.effort -= _EFFORT_OF_A_FILE + meter.effort
        if not found.finite:
            self.last_failure = "an output holds NaN"
            return None
        if limits and self.live and not self.live.agrees(variant):
            self.last_failure = "the printed module and the live one disagree"
            return None
        return found

    def one_by_one(self, full: Point, limits: tuple[int, int]) -> Iterator[Point]:
        """From the least schematic point that runs at all, each integer as small as it goes, the largest first."""
        starts = [*reversed(list(_ladder(full))), full]
        point = next((start for start in starts if self.weigh(start, None)), None)
        if point is None:
            return
        for key in sorted(full, key=lambda key: -full[key]):
            for value in _smaller(point[key]):
                changed = {**point, key: value}
                found = self.weigh(changed, None)
                if found:
                    point = changed
                    if found.elements <= limits[0] and found.macs <= limits[1]:
                        yield point
                    break

    def odd(self, small: Point, index: int) -> Point:
        """`small` with as many odd sizes as the reference allows, near the sizes that `_STARTS[index]` says."""
        base = self.weigh(small, _NO_LIMITS)
        if base is None:
            return small
        limits = (2 * max(base.elements, PREFERRED[0]), 2 * max(base.macs, PREFERRED[1]))
        point = dict(small)
        shapes = base.shapes
        for _ in range(2):  # What one size forbids another, the second round may allow.
            for key in sorted(small, key=lambda key: -small[key]):
                if point[key] % 2 and point[key] != small[key]:
                    continue
                for changes in _odd_changes(point, small, key, index):
                    found = self.weigh({**point, **changes}, limits)
                    if found and found.shapes != shapes and (base.constant or not found.constant):
                        point.update(changes)
                        shapes = found.shapes
                        break
        return point


def _sizes(source: str, live: Live | None) -> Point:
    """The integers that may be changed, each under one name."""
    kept = KEPT if live is None else 1
    return {key: value for key, value in distinct_constants(source).items() if value > kept}


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


def _smaller(value: int) -> Iterator[int]:
    """Values to try instead of a larger one, the least first: powers of two, then its own halves."""
    sizes = {2**k for k in range(2, 9)} | {value >> k for k in range(1, value.bit_length() - 2)}
    yield from sorted(size for size in sizes if size < value)


def _odd_changes(point: Point, small: Point, key: str, index: int) -> Iterator[Point]:
    """Changes of one size, the best first: odd and unlike the others; odd with its equals; odd; odd times another's."""
    value = min(small[key], LARGEST)
    start = _STARTS[index](value) | 1
    odd = range(start, start + 64, 2)
    unlike = [size for size in odd if size not in point.values()][:_CANDIDATES]
    yield from ({key: size} for size in unlike)
    tied = [other for other in small if small[other] == small[key]]
    if len(tied) > 1:
        yield from (dict.fromkeys(tied, size) for size in unlike)
    yield from ({key: size} for size in (*odd[:2], 3, 5) if size != point[key])
    if point[key] == small[key]:
        factors = sorted({other for other in (*point.values(), 2, 4, 8) if 1 < other <= value})
        multiples = (factor * size for size in (3, 5) for factor in factors)
        yield from ({key: size} for size in multiples if size not in point.values())


def _power_of_two(value: int) -> int:
    """The largest power of two that is not above `value` (at least 1)."""
    return 1 << (value.bit_length() - 1)
