"""The sample of a grid: which program instances are run, and how many others each stands for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

MOST_BORDERS = 2
"""Between programs that do different things."""
MOST_IN_TURN, SEEN_AGAIN = 32, 3
"""Programs after which the same come once more, and how many of those have to be seen a second time."""
MOST_KINDS = 4
"""Among the programs of a sample; where there are more, each does its own amount."""


def sample_programs(size: Sequence[int], count: int) -> list[tuple[int, tuple[bool, ...]]]:
    """Up to `count` programs of a grid (x, y, z) to run, the most telling first: (launch index, part of the grid).

    A grid has up to 8 parts: along each axis either the last index, which may be a partly masked tail, or all others.
    One program of the largest part comes first, then one of each other part, then more of the parts in proportion to
    their size, evenly spread. The first program is among them where there are enough.
    """
    parts: dict[tuple[bool, ...], list[range]] = {}
    for mask in range(8):
        last = tuple(bool(mask >> axis & 1) for axis in range(3))
        if any(is_last and n == 1 for is_last, n in zip(last, size, strict=True)):
            continue
        parts[last] = [
            range(n - 1, n) if is_last else range(max(1, n - 1)) for is_last, n in zip(last, size, strict=True)
        ]
    volume = {part: math.prod(len(axis) for axis in axes) for part, axes in parts.items()}
    order = sorted(parts, key=lambda part: -volume[part])
    spare = max(0, count - len(order))
    quota = {part: min(volume[part], 1 + round(spare * volume[part] / sum(volume.values()))) for part in order}
    picks = {part: _spread(volume[part], quota[part]) for part in order}
    rounds = [[(p, picks[p][i]) for p in order if i < len(picks[p])] for i in range(max(quota.values()))]
    return [(_index(parts[part], place, size), part) for group in rounds for part, place in group][:count]


def _spread(volume: int, count: int) -> list[int]:
    """`count` places of `volume`, evenly spread: midpoints, but 0 for the first of them, and the middle one first."""
    places = sorted({min(volume - 1, int((i + 0.5) * volume / count)) for i in range(count)})
    if count > 2:
        places[0] = 0
    middle = places.pop(len(places) // 2)
    return [middle, *places]


def _index(axes: Sequence[range], place: int, size: Sequence[int]) -> int:
    x = axes[0][place % len(axes[0])]
    y = axes[1][place // len(axes[0]) % len(axes[1])]
    z = axes[2][place // (len(axes[0]) * len(axes[1]))]
    return x + size[0] * (y + size[1] * z)


def sample_weights(size: Sequence[int], indices: Sequence[int]) -> list[float]:
    """How many programs each sampled one stands for: those of its part of the grid, shared evenly, or along one axis those
    that it is the nearest to.

    A part without a sample counts with the largest part, whose sample always runs.
    """
    if size[0] == math.prod(size):
        return _nearest(size[0], indices)
    part_of = {}
    for index in indices:
        place = (index % size[0], index // size[0] % size[1], index // (size[0] * size[1]))
        part_of[index] = tuple(p == n - 1 and n > 1 for p, n in zip(place, size, strict=True))
    volume = {
        part: math.prod(1 if is_last else max(1, n - 1) for is_last, n in zip(part, size, strict=True))
        for part in part_of.values()
    }
    missing = math.prod(size) - sum(volume.values())
    volume[max(volume, key=lambda part: volume[part])] += missing
    members = list(part_of.values())
    return [volume[part_of[index]] / members.count(part_of[index]) for index in indices]


def _nearest(count: int, indices: Sequence[int]) -> list[float]:
    """See `sample_weights`: of programs in a row, of which the last one is a part of its own."""
    end = count - 1 if count - 1 in indices and len(indices) > 1 else count
    inside = sorted(index for index in indices if index < end)
    between = [0, *((a + b + 1) // 2 for a, b in itertools.pairwise(inside)), end]
    weights = {at: float(high - low) for at, (low, high) in zip(inside, itertools.pairwise(between), strict=True)}
    return [weights.get(index, 1.0) for index in indices]


def turn(size: Sequence[int], sampled: Mapping[int, Hashable], kind_of: Callable[[int], Hashable]) -> range | None:
    """Programs of one turn, where a few kinds of them come again and again in the same order, as the first, the middle and
    the last of each image do; None where they do not, or where there is no more than one kind.

    A sample that is evenly spread may hold far too many of one kind. Neighbours are run until one length of a turn is left
    with which they, and all of the sample, agree: what a few programs in one place do tells nothing of the others without
    that. Along one axis only, without the first and the last program, which may have more to do, or less.

    sampled: kinds of those that have run, by index. kind_of: runs one.
    """
    end = size[0] - 1
    inside = {index: kind for index, kind in sampled.items() if 0 < index < end}
    if size[0] != math.prod(size) or not 1 < len({*inside.values()}) <= MOST_KINDS:
        return None
    start = max(1, min(next(iter(inside)), end - MOST_IN_TURN - SEEN_AGAIN))
    seen: list[Hashable] = []
    lengths = list(range(2, MOST_IN_TURN + 1))
    for index in range(start, min(end, start + MOST_IN_TURN + SEEN_AGAIN)):
        seen.append(inside[index] if index in inside else kind_of(index))
        lengths = [length for length in lengths if _agrees(length, start, seen, inside)]
        if not lengths:
            return None
        if len(seen) >= lengths[0] + SEEN_AGAIN:
            return range(start, start + lengths[0])
    return None


def _agrees(length: int, start: int, seen: Sequence[Hashable], sampled: Mapping[int, Hashable]) -> bool:
    """Whether a turn of so many programs gives all kinds that are known: of neighbours from `start` on, and of a sample."""
    if len(seen) > length and seen[-1] != seen[-1 - length]:
        return False
    places = ((index - start) % length for index in sampled)
    return all(place >= len(seen) or seen[place] == kind for place, kind in zip(places, sampled.values(), strict=True))


def turn_weights(size: Sequence[int], found: range, indices: Sequence[int]) -> list[float]:
    """As `sample_weights` where programs come in turns, of which one has run: its programs stand for all but the first and
    the last, where these have run."""
    alone = {0, size[0] - 1}.intersection(indices)
    each = (size[0] - len(alone)) / len(found)
    return [1.0 if index in alone else each if index in found else 0.0 for index in indices]


def borders(size: Sequence[int], same: Callable[[int, int], bool], indices: Sequence[int]) -> Iterator[int]:
    """Further programs to run, where those of a sample do one of few things, each a stretch of them: on both sides of each
    border, and on the way there. Along one axis only. same: whether two that have run do the same.

    Where many neighbours differ each does its own amount, which a sample tells well enough.
    """
    count = size[0]
    if count != math.prod(size):
        return
    inside = sorted(index for index in indices if index < count - 1)
    found = [(a, b) for a, b in itertools.pairwise(inside) if not same(a, b)]
    for low, high in found if len(found) <= MOST_BORDERS else ():
        while high - low > 1:
            middle = (low + high) // 2
            yield middle
            low, high = (middle, high) if same(low, middle) else (low, middle)
