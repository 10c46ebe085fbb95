"""Which CPU cores measure and which build, so that the one does not wait for the other.

A call of a small kernel takes the host 20 to 30 us, and that is what its user waits for (see `measure.call_time`). With
builds on all cores the same call takes up to three times as long, and in another evaluation not. So each GPU has cores on
which nothing of the evaluator's runs but its oracle and the candidate whose turn it is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PHYSICAL, MOST_PHYSICAL = 2, 4
"""Cores of a GPU, each with all of its hardware threads: the oracle waits on one while the candidate works on the other.
Where there are enough, more of them: the driver has threads too, and of a rented machine's cores one may be taken up by its
neighbours (on an H100 machine a launch took 44 us on two such cores, and 22 on four)."""
SHARE = 4
"""All quiet cores are no more than one in so many, as far as that leaves `PHYSICAL` for each GPU."""
LEAST = 8
"""Hardware threads for each GPU of a machine, below which none are set apart: building would take too long."""
_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class CoreSplit:
    """Numbers of hardware threads. quiet: of each GPU, in the order in which they were asked for; none where there are too
    few. others: for all else; none: whichever there are."""

    quiet: tuple[tuple[int, ...], ...]
    others: tuple[int, ...] = ()


def split(
    available: Collection[int], siblings: Mapping[int, Collection[int]], gpus: Sequence[int], present: int
) -> CoreSplit:
    """Set cores apart.

    available: hardware threads that this process may use. siblings: of each, those of the same core. gpus: positions among
    those of the machine that are measured on; present: how many there are. Another process that measures on another GPU of
    the machine finds other cores by the same rule.
    """
    none = CoreSplit(((),) * len(gpus))
    if len(available) < LEAST * max(1, present):
        return none
    groups: list[tuple[int, ...]] = []
    for thread in sorted(available, reverse=True):  # the first ones are where a machine does its own work
        if not any(thread in group for group in groups):
            groups.append(tuple(sorted({thread, *siblings.get(thread, ())} & set(available))))
    if len(groups) < 2 * PHYSICAL * present or max(gpus, default=0) >= present:
        return none
    each = max(PHYSICAL, min(MOST_PHYSICAL, len(groups) // (SHARE * present)))
    sets = [tuple(sorted(sum(groups[each * at : each * (at + 1)], ()))) for at in range(present)]
    taken = {thread for each in sets for thread in each}
    return CoreSplit(tuple(sets[gpu] for gpu in gpus), tuple(sorted(set(available) - taken)))


def split_here(gpus: Sequence[int], present: int) -> CoreSplit:
    """`split` of the cores of this process. Where the system tells no affinity, none are set apart."""
    if not hasattr(os, "sched_getaffinity"):
        return CoreSplit(((),) * len(gpus))
    available = os.sched_getaffinity(0)
    return split(available, {thread: _siblings(thread) for thread in available}, gpus, present)


def keep_to(threads: Collection[int]) -> None:
    """Run the calling thread, and what it starts from now on, on these hardware threads. None: wherever it runs now."""
    if threads and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, threads)


def _siblings(thread: int) -> set[int]:
    """Hardware threads of a core ("3,19" or "6-7"); none where the system does not tell."""
    try:
        text = (_TOPOLOGY / f"cpu{thread}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return set()
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
