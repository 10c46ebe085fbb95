"""What programs of earlier launches have added to a storage by atomics, computed when a spot check asks for it.

Those are run that reach the element which is asked for, as far as their places in the grid tell
(`mtmc.evaluate.counting.demanded`): parts of a sum along the depth of a product, or blocks of a row. Which they are is a
guess; one that does not reach the element, though it should, makes it unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mtmc.evaluate.counting.contents import Array, Content

if TYPE_CHECKING:
    from mtmc.evaluate.counting.launches import Launches, Sampled

MOST_REACHING, MOST_ASKED = 4096, 1 << 16
"""Programs that add to one element, and elements that are asked for at a time."""
ADDING: Mapping[str, Callable[[Any, Any], Any]] = {
    "ADD": np.add,
    "FADD": np.add,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
}
"""Atomics whose order makes no difference, but for rounding."""
NOTHING = ("ADD", "FADD", "OR", "XOR")
"""Those that change nothing where they are given zeros."""

Atomics = list[tuple[str, Array, Array]]
"""Atomics of one program: what they do, addresses, values."""


class Reaching(Protocol):
    """A launch, and which of its programs reach what, see `demanded.Producer`."""

    sampled: Sampled
    element: int

    def first(self) -> int | None:
        """A program to begin with."""

    def learn(self, index: int, elements: Sequence[Array]) -> None:
        """Note what a program reached."""

    def reaching(self, element: int) -> Array | None:
        """All programs that reach an element."""


class Adding(Protocol):
    """What is known of a forward's launches."""

    launches: Launches
    unsummed: bool

    def begun(self, number: int, place: int) -> Content | None:
        """What a storage holds before anything is added."""

    def atomics(self, sampled: Sampled, index: int) -> Atomics | None:
        """What a program does by atomics; None where that is not known."""


class Added:
    """A storage to which programs of some launches add. See `Content`.

    begin: place of the op that fills it. launches: those that add.
    """

    of_atomics = True

    def __init__(self, writers: Adding, number: int, begin: int, launches: Sequence[Reaching]) -> None:
        self._writers, self._number, self._begin, self._launches = writers, number, begin, launches
        self._values: dict[int, Any] = {}
        self._seen: dict[tuple[int, int], tuple[str, Array, Array] | None] = {}
        self._unknown = False

    def read(self, elements: Array) -> Array | None:
        """See `Content`."""
        wanted = np.unique(elements)
        self._writers.unsummed = self._writers.unsummed or wanted.size > MOST_ASKED
        if self._unknown or wanted.size > MOST_ASKED:
            return None
        begun = self._writers.begun(self._number, self._begin)
        base = None if begun is None else begun.read(wanted)
        if base is None:
            return None
        for each in self._launches:
            each.element = int(base.itemsize)
        for at, element in enumerate(wanted):
            if int(element) not in self._values and not self._sum(wanted[at:], base[at:]):
                self._unknown = True
                return None
        return np.array([self._values[int(n)] for n in elements.ravel()], base.dtype).reshape(elements.shape)

    def _sum(self, wanted: Array, base: Array) -> bool:
        """Add up what reaches the first of some elements, and those of the others that the same programs reach."""
        parts: list[tuple[str, Array, Array]] = []
        inside = np.ones(wanted.size, bool)
        for at, launch in enumerate(self._launches):
            indices = self._reaching(at, launch, int(wanted[0]))
            if indices is None:
                return False
            for index in indices:
                part = self._of(at, launch, int(index))
                if part is None or part[2].dtype != base.dtype or int(wanted[0]) not in part[1]:
                    return False
                parts.append(part)
                inside &= np.isin(wanted, part[1])
            last = wanted[inside][-1:]
            other = self._reaching(at, launch, int(last[0]))
            if other is None or not np.array_equal(indices, other):
                inside[1:] = False
        if len({op for op, elements, values in parts if _changes(op, elements, values)}) > 1:
            return False  # it hangs on their order
        total = base[inside].copy()
        for op, elements, values in parts:
            order = np.argsort(elements, kind="stable")
            if elements.size > 1 and (np.diff(elements[order]) == 0).any():
                return False
            total = ADDING[op](total, values[order][np.searchsorted(elements[order], wanted[inside])])
        self._values |= dict(zip(wanted[inside].tolist(), total, strict=True))
        return True

    def _reaching(self, at: int, launch: Reaching, element: int) -> Array | None:
        begin = launch.first()
        if begin is not None and self._of(at, launch, begin) is None:
            return None
        found = launch.reaching(element)
        if found is not None and found.size > MOST_REACHING:
            self._writers.unsummed = True
            return None
        return found

    def _of(self, at: int, launch: Reaching, index: int) -> tuple[str, Array, Array] | None:
        """What a program adds to this storage: how, elements, values; None where that is not known."""
        if (at, index) not in self._seen:
            self._seen[at, index] = self._found(launch, index)
        return self._seen[at, index]

    def _found(self, launch: Reaching, index: int) -> tuple[str, Array, Array] | None:
        atomics = self._writers.atomics(launch.sampled, index)
        storages = self._writers.launches.storages
        own = [
            (op, storages.offset(self._number, there.astype(np.int64)) // launch.element, values)
            for op, there, values in atomics or ()
            if there.size and storages.find(int(there.min())) == self._number
        ]
        own = [each for each in own if _changes(*each)] or own[:1]
        ops = {op for op, _, _ in own}
        if atomics is None or len(ops) > 1 or not ops <= ADDING.keys():
            return None
        elements = [each for _, each, _ in own]
        launch.learn(index, elements)
        if not own:
            return None
        return ops.pop(), np.concatenate(elements), np.concatenate([values for _, _, values in own])


def _changes(op: str, elements: Array, values: Array) -> bool:
    """Whether an atomic may change anything."""
    return op not in NOTHING or bool(values.any())
