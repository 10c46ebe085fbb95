"""shares: among how many programs work is split, so that a GPU has enough of them, and along which axes of the grid."""

from __future__ import annotations

from collections.abc import Callable

from mtmc.rewrite.graph import Shape, product

ENOUGH_PROGRAMS = 264
"""Two for each multiprocessor of an H100-class GPU."""

MOST_ACROSS = 65_535
"""Programs that CUDA takes along a grid's second axis; along the first it takes 2**31 - 1."""


def shares(programs: int, step: int, worth: Callable[[int], bool], enough: int = ENOUGH_PROGRAMS) -> int:
    """The least power of `step` by which `programs` become `enough`, or the last one that is still worth it."""
    split = 1
    while programs * split < enough and worth(split * step):
        split *= step
    return split


def crowded(batch: Shape) -> bool:
    """Whether a batch has more products than a grid's second axis takes at some variant: its axis is then the first."""
    return any(products > MOST_ACROSS for products in product(batch))
