"""points: which sizes to try in place of a file's integers, and in which order. Pure; whether they run is for `trials.py`.

Schematic points are powers of two, distinct integers kept distinct; odd ones lie near a point and are unlike each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice

LARGEST, LEAST = 256, 4
"""Small shapes are powers of two in this range."""
_CANDIDATES = 6
_MOST_TIED = 3
STARTS: tuple[Callable[[int], int], ...] = (
    lambda small: small // 2 + 1,
    lambda small: small + 1,
    lambda small: 3,
    lambda small: small + 3,
    lambda small: small + 7,
)
"""Where the odd sizes of each held-out set begin: somewhat smaller, just above, least; the rest replace failures."""
STARTS_LARGE = (1, 3, 4)

Point = dict[str, int]
"""The values of a file's integers, by name."""


def ladder(full: Point) -> Iterator[Point]:
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


def smaller(value: int, least: int) -> Iterator[int]:
    """Values to try instead of a larger one, from `least`: powers of two and its own halves."""
    sizes = {2**k for k in range(9)} | {value >> k for k in range(1, value.bit_length())}
    yield from sorted(size for size in sizes if least <= size < value)


def alone_and_tied(full: Point) -> Iterator[tuple[str, ...]]:
    """Each integer, the largest first, and behind each value the integers that have it, where these are several."""
    for value in sorted(set(full.values()), reverse=True):
        keys = tuple(key for key in full if full[key] == value)
        yield from ((key,) for key in keys)
        if len(keys) > 1:
            yield keys


def odd_changes(point: Point, small: Point, key: str, index: int) -> Iterator[Point]:
    """Changes of one size, the best first: odd and unlike the others; odd with its equals; odd; odd times another's.

    With as few of its equals as will do: sizes that only happen to be equal should not stay so.
    """
    value = min(small[key], LARGEST)
    start = STARTS[index](value) | 1
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


def apart(point: Point, small: Point, key: str, index: int) -> Iterator[Point]:
    """Changes of one size alone that leave it unlike all others: two sizes that are equal wherever a reference is looked at
    are taken for one."""
    value = min(small[key], LARGEST)
    start = STARTS[index](value)
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
