"""What programs of earlier launches have added to a storage by atomics, where these are so few that all of them are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mtmc.evaluate.counting.contents import Array

if TYPE_CHECKING:
    from mtmc.evaluate.counting.launches import Launches


class Adding(Protocol):
    """What is known of a forward's launches."""

    launches: Launches

    def filled(self, number: int) -> Array:
        """The number that a storage is filled with at first, as an array of one."""

    def added_by(self, place: int) -> list[tuple[Array, Array]] | None:
        """What a launch adds, as addresses and values; None where that is not known."""


class Added:
    """A storage that begins with one number everywhere, to which programs of some launches add. See `Content`."""

    def __init__(self, writers: Adding, number: int, places: Sequence[int]) -> None:
        self._writers, self._number, self._places = writers, number, places
        self._values: Array | None = None
        self._tried = False

    def read(self, elements: Array) -> Array | None:
        """See `Content`."""
        if not self._tried:
            self._tried = True
            self._values = self._sum()
        return None if self._values is None or int(elements.max()) >= self._values.size else self._values[elements]

    def _sum(self) -> Array | None:
        storages = self._writers.launches.storages
        base = self._writers.filled(self._number)
        total = np.full(storages.sizes[self._number] // base.itemsize, base.reshape(())).astype(base.dtype)
        for place in self._places:
            added = self._writers.added_by(place)
            if added is None:
                return None
            for addresses, values in added:
                if not addresses.size or storages.find(int(addresses.min())) != self._number:
                    continue
                at = storages.offset(self._number, addresses.astype(np.int64)) // base.itemsize
                if values.dtype != total.dtype or int(at.max()) >= total.size:
                    return None
                np.add.at(total, at, values)
        return total
