"""Rewards of the environment against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mtmc.outcome import Outcome
from mtmc.rl.rewards import FAILURE, log_gain, log_speedup, paper, progress

FAST, SLOW = Outcome("ok", 2.0), Outcome("ok", 8.0)
FAILED, WRONG = Outcome("build_error"), Outcome("wrong_result")


@pytest.mark.parametrize(
    ("outcome", "previous", "expected"),
    [
        (FAST, SLOW, 0.1 + 0.5 + 1.0),
        (SLOW, FAST, 0.1 + 0.5),
        (FAST, FAST, 0.6),  # as fast is not faster
        (FAILED, FAST, -1.0),
        (WRONG, FAST, 0.1 - 0.5),
    ],
)
def test_the_papers_reward(outcome: Outcome, previous: Outcome, expected: float) -> None:
    assert paper(outcome, previous) == pytest.approx(expected)


def test_log_speedup() -> None:
    assert log_speedup(FAST, SLOW) == 2.0
    assert log_speedup(SLOW, FAST) == -2.0
    assert log_speedup(WRONG, FAST) == FAILURE
    assert log_gain(FAST, SLOW) == 2.0
    with pytest.raises(ValueError, match="build_error"):
        log_gain(FAILED, SLOW)


def test_progress_counts_only_what_is_better_than_the_best() -> None:
    assert progress(np.array([4.0, 2.0]), np.array([2.0, 2.0])).tolist() == [1.0, 0.0]


def test_an_episodes_log_speedups_sum_to_its_last_versions() -> None:
    outcomes = [Outcome("ok", runtime) for runtime in (8.0, 4.0, 5.0, 1.0)]
    gained = [log_speedup(after, before) for before, after in itertools.pairwise(outcomes)]
    assert sum(gained) == pytest.approx(math.log2(8.0))
