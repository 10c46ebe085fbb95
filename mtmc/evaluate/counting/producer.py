"""A launch that writes a storage: which of its programs write what of it, guessed from those that have run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mtmc.evaluate.counting.contents import Array
from mtmc.evaluate.counting.launches import Launches, Sampled

MOST_PROGRAMS = 1 << 21
_TRIES = 3
_SIZES = (4, 2, 8, 1)  # bytes of an element, likely ones first


class Producer:
    """A launch that writes a storage, and which of its programs write what of it, as far as that is known.

    element: bytes of one, once it is known. under_way: programs that run, and wait for others.
    """

    def __init__(self, sampled: Sampled, number: int, launches: Launches) -> None:
        self.sampled = sampled
        storages = launches.storages
        lows = {
            index: storages.offset(number, tally.uses[number].begin)
            for index, tally in sampled.tallies.items()
            if number in tally.uses and tally.uses[number].written
        }
        self._size = sampled.program.size
        self._lows = _first_bytes(lows, sampled.program)
        self.element = 1
        self._pattern: Array | None = None
        self._done: set[int] = set()
        self.under_way: set[int] = set()

    def learn(self, index: int, elements: Sequence[Array]) -> None:
        """Note what a program wrote."""
        self._done.add(index)
        if self._lows is None or not elements:
            return
        written = np.unique(np.concatenate(elements))
        pattern = written - written[0]
        if self._pattern is None or pattern.size > self._pattern.size:
            self._pattern = pattern

    def first(self) -> int | None:
        """A program to begin with, where nothing is known of what they reach."""
        return next(iter(self.sampled.tallies), None) if self._pattern is None else None

    def reaching(self, element: int) -> Array | None:
        """All programs that reach an element, as far as their places in the grid tell."""
        if self._lows is None or self._pattern is None:
            return None
        return np.flatnonzero(self._hits(element))

    def _hits(self, element: int) -> Array:
        """Which programs reach an element."""
        assert self._lows is not None and self._pattern is not None
        ahead = np.asarray(element - self._lows // self.element)
        place = np.minimum(np.searchsorted(self._pattern, ahead), self._pattern.size - 1)
        return np.asarray((ahead >= 0) & (self._pattern[place] == ahead))

    def likely(self, element: int) -> Iterator[int]:
        """Programs that may have written an element, the likeliest first; none twice."""
        for _ in range(_TRIES):
            index = self._likeliest(element)
            if index is None or index in self._done:
                return
            yield index

    def _likeliest(self, element: int) -> int | None:
        if self._lows is None:
            return None
        if self._pattern is None:  # what relative addresses there are is not known before one has run
            first = (int(n) for size in _SIZES for n in np.flatnonzero(self._lows == element * size)[:1])
            return next((n for n in (*first, *self.sampled.tallies) if n not in self._done | self.under_way), None)
        found = np.flatnonzero(self._hits(element))
        return next((int(n) for n in found[:8] if int(n) not in self._done | self.under_way), None)


def _first_bytes(lows: Mapping[int, int], program: Any) -> Array | None:
    """The first byte that each program of a launch writes, by index; None where it is no sum over places in the grid."""
    nx, ny, nz = program.size
    total = nx * ny * nz
    if not lows or total > MOST_PROGRAMS:
        return None
    every = np.arange(total, dtype=np.int64)
    seen = np.array(sorted(lows), np.int64)
    values = np.array([lows[int(n)] for n in seen], np.float64)
    for places in _places(every, program):
        table = np.stack([np.ones(total), *places], axis=1)
        fit, *_ = np.linalg.lstsq(table[seen], values, rcond=None)
        fit = np.round(fit)
        if np.array_equal(table[seen] @ fit, values) and len(seen) > np.linalg.matrix_rank(table[seen]):
            return np.asarray((table @ fit).astype(np.int64))
        if total == len(seen):
            break
    if total == len(seen):
        return values.astype(np.int64)
    return None


def _places(every: Array, program: Any) -> Iterator[list[Array]]:
    """Ways to see a program's place in the grid as some numbers."""
    nx, ny, _ = program.size
    x, y, z = every % nx, every // nx % ny, every // (nx * ny)
    yield [x, y, z]
    sizes = program.sizes()
    for across in sizes:
        yield [x // across, x % across, y, z]
    for across, group in itertools.product(sizes, [n for n in sizes if n <= 64]):
        inside = x % (group * across)
        whole = x // (group * across) * group
        rows = np.minimum(group, -(-nx // across) - whole)
        rows = np.maximum(rows, 1)
        yield [whole + inside % rows, inside // rows, y, z]
