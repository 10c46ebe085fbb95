"""Rewards of the environment against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest

from mtmc.outcome import Outcome
from mtmc.rl.rewards import FAILURE, Moment, log_gain, log_speedup, paper, progress

FAST, SLOW = Outcome("ok", 2.0), Outcome("ok", 8.0)
FAILED, WRONG = Outcome("build_error"), Outcome("wrong_result")


@pytest.mark.parametrize(
    ("outcome", "previous", "step", "decay", "expected"),
    [
        (FAST, SLOW, 1, 0.02, 0.1 + 0.5 + 1.0 - 0.02),
        (SLOW, FAST, 2, 0.02, 0.1 + 0.5 - 0.04),
        (FAST, FAST, 3, 0.0, 0.6),  # as fast is not faster
        (FAILED, FAST, 1, 0.02, -1.02),
        (WRONG, FAST, 5, 0.1, 0.1 - 0.5 - 0.5),
    ],
)
def test_the_papers_reward(outcome: Outcome, previous: Outcome, step: int, decay: float, expected: float) -> None:
    assert paper(Moment(outcome, previous, 8.0, step), decay) == pytest.approx(expected)


def test_log_speedup() -> None:
    assert log_speedup(Moment(FAST, SLOW, 8.0, 1)) == 2.0
    assert log_speedup(Moment(SLOW, FAST, 2.0, 3), decay=0.1) == pytest.approx(-2.3)
    assert log_speedup(Moment(WRONG, FAST, 2.0, 1)) == FAILURE
    assert log_gain(FAST, SLOW) == 2.0
    with pytest.raises(ValueError, match="build_error"):
        log_gain(FAILED, SLOW)


def test_progress_counts_only_what_is_better_than_the_best() -> None:
    assert progress(Moment(FAST, SLOW, 4.0, 1)) == 1.0
    assert progress(Moment(SLOW, FAST, 2.0, 1)) == 0.0
    assert progress(Moment(FAILED, SLOW, 8.0, 2), decay=0.5) == -1.0


def test_an_episodes_log_speedups_sum_to_its_last_versions() -> None:
    runtimes = [8.0, 4.0, 5.0, 1.0]
    moments = [Moment(Outcome("ok", b), Outcome("ok", a), 0.0, 1) for a, b in itertools.pairwise(runtimes)]
    assert sum(map(log_speedup, moments)) == pytest.approx(math.log2(8.0))
