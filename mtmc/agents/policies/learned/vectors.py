"""vectors: named features as vectors, by the names that a network learned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def names_in(rows: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """All names that any of these features has, sorted."""
    return tuple(sorted(set().union(*rows)))


def matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Vector:
    """Features as [rows, names]: 0 where a row has no such name; what has another name is left out."""
    found = np.zeros((len(rows), len(names)), np.float32)
    place = {name: at for at, name in enumerate(names)}
    for row, values in zip(found, rows, strict=True):
        for name, value in values.items():
            at = place.get(name)
            if at is not None:
                row[at] = value
    return found
