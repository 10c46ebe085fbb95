"""Cores that measure and cores that build."""

from __future__ import annotations

import os

import pytest

from mtmc.evaluate.core_split import CoreSplit, keep_to, split, split_here

ALONE = {thread: {thread} for thread in range(64)}
PAIRS = {thread: {thread, (thread + 8) % 16} for thread in range(16)}


def test_each_gpu_has_whole_cores_and_nothing_else_runs_there() -> None:
    assert split(range(16), ALONE, [0], 1) == CoreSplit(((12, 13, 14, 15),), tuple(range(12)))
    assert split(range(8), ALONE, [0], 1) == CoreSplit(((6, 7),), tuple(range(6)))
    found = split(range(16), PAIRS, [0], 1)
    assert found == CoreSplit(((6, 7, 14, 15),), (0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13))


def test_processes_that_measure_on_other_gpus_find_other_cores() -> None:
    first, second = (split(range(32), ALONE, [gpu], 2) for gpu in (0, 1))
    assert first.quiet == ((28, 29, 30, 31),) and second.quiet == ((24, 25, 26, 27),)
    assert first.others == second.others == tuple(range(24))
    assert split(range(32), ALONE, [1, 0], 2).quiet == ((24, 25, 26, 27), (28, 29, 30, 31))


@pytest.mark.parametrize(("threads", "present"), [(7, 1), (15, 2), (2, 1)])
def test_too_few_cores_are_left_as_they_are(threads: int, present: int) -> None:
    assert split(range(threads), ALONE, [0], present) == CoreSplit(((),))


def test_cores_that_this_process_may_not_use_are_not_given_away() -> None:
    found = split(range(4, 14), {thread: {thread, thread ^ 1} for thread in range(16)}, [0], 1)
    assert found == CoreSplit(((10, 11, 12, 13),), (4, 5, 6, 7, 8, 9))


def test_no_cores_means_wherever_there_is_room() -> None:
    before = os.sched_getaffinity(0)
    try:
        keep_to(())
        assert os.sched_getaffinity(0) == before
        keep_to([min(before)])
        assert os.sched_getaffinity(0) == {min(before)}
        assert split_here([0], 1) == CoreSplit(((),))
    finally:
        os.sched_setaffinity(0, before)
