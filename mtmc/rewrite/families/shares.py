"""shares: among how many programs work is split, so that a GPU has enough of them."""

from __future__ import annotations

from collections.abc import Callable

ENOUGH_PROGRAMS = 264
"""Two for each multiprocessor of an H100-class GPU."""


def shares(programs: int, step: int, worth: Callable[[int], bool]) -> int:
    """The least power of `step` by which `programs` become enough, or the last one that is still worth it."""
    split = 1
    while programs * split < ENOUGH_PROGRAMS and worth(split * step):
        split *= step
    return split
