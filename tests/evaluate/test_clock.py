"""Medians, intervals, stopping and the agreement of two clocks, by hand."""

import random
from dataclasses import replace

import pytest

from mtmc.evaluate.measure.clock import (
    Overhead,
    OverheadTable,
    TaskOverhead,
    TimingBudget,
    disturbed_share,
    floor_ms,
    hidden_ms,
    lower_eighth,
    median,
    summarize,
)


def test_median_and_its_interval_by_order_statistics():
    timing = summarize([float(n) for n in range(1, 26)])
    # n = 25: 12.5 -+ 1.96 * 5 / 2 = 12.5 -+ 4.9 -> order statistics 7 (0-based, value 8) and ceil(17.4) - 1 = 17 (value 18)
    assert (timing.median_ms, timing.low_ms, timing.high_ms, timing.trials) == (13.0, 8.0, 18.0, 25)


def test_a_single_sample_is_its_own_interval():
    assert summarize([0.5]) == summarize([0.5])
    assert (summarize([0.5]).low_ms, summarize([0.5]).high_ms) == (0.5, 0.5)


def test_no_sample_is_an_error():
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


def test_a_timing_budget_ends_with_precision_or_count_or_time():
    budget = TimingBudget(least=4, most=8, precision=0.01, seconds=1.0)
    assert not budget.enough([1.0] * 3, 5.0)
    assert budget.enough([1.0] * 4, 0.0)
    noisy = [1.0, 2.0, 3.0, 4.0]
    assert not budget.enough(noisy, 0.0)
    assert budget.enough(noisy, 1.0)
    assert budget.enough(noisy * 2, 0.0)
    assert budget.enough([0.00100, 0.00102, 0.00104, 0.00106], 0.0)  # within three ticks of the device's clock


def test_overhead_between_and_beyond_its_points():
    overhead = Overhead(((0, 0.15), (1000, 0.16), (3000, 0.20)))
    assert overhead.ms(0, 1) == pytest.approx(0.15)
    assert overhead.ms(2000, 1) == pytest.approx(0.18)
    assert overhead.ms(5000, 1) == pytest.approx(0.24)
    assert overhead.ms(0, 3) == pytest.approx(0.158)


@pytest.mark.parametrize(
    ("count", "least"), [(1, 1.0), (8, 1.0), (9, 2.0), (12, 2.0), (16, 2.0), (17, 3.0), (100, 13.0)]
)
def test_lower_eighth_is_a_sample(count: int, least: float):
    assert lower_eighth([float(n) for n in range(count, 0, -1)]) == least  # place (count - 1) // 8


def test_a_stated_time_must_explain_the_clock():
    # 1 ms of work: the clock shows 1.15, of which 0.15 are overhead.
    assert hidden_ms([1.15, 1.16, 1.15], [1.0, 1.0, 1.0], 0.15) == 0.0
    assert hidden_ms([1.15, 1.16, 1.15], [0.5, 0.5, 0.5], 0.15) == pytest.approx(0.5)
    # Within 5 us + 3% of 0.15 ms + 0.1% of 1.15 ms nothing is said: 10.65 us.
    assert hidden_ms([1.15], [0.9894], 0.15) == 0.0
    assert hidden_ms([1.15], [0.9893], 0.15) == pytest.approx(0.0107)
    # Of 10 ms that is 19.65 us, no share of the work.
    assert hidden_ms([10.15], [9.981], 0.15) == 0.0
    assert hidden_ms([10.15], [9.980], 0.15) == pytest.approx(0.02)


@pytest.mark.parametrize(("disturbed", "hidden"), [(5, 0.0), (7, 0.0), (10, 0.0), (11, 0.14), (12, 0.14)])
def test_what_else_the_machine_does_makes_no_liar_of_an_honest_version(disturbed: int, hidden: float):
    """Of 12 calls the second least clock counts: up to ten may show 0.14 ms more."""
    walls = [1.29] * disturbed + [1.15] * (12 - disturbed)
    assert hidden_ms(walls, [1.0] * 12, 0.15) == pytest.approx(hidden)
    assert disturbed_share(walls, [1.0] * 12, 0.15) == pytest.approx(disturbed / 12)


@pytest.mark.parametrize("forged", range(13))
def test_forging_some_times_gains_no_more_than_forging_all(forged: int):
    """Of 12 calls of 1 ms some state 0.1: the median is true where they are less than half, and else it is found out."""
    stated = [0.1] * forged + [1.0] * (12 - forged)
    hidden = hidden_ms([1.15] * 12, stated, 0.15)
    if forged < 6:
        assert (hidden, median(stated)) == (0.0, 1.0)
    else:
        assert hidden == pytest.approx(0.45 if forged == 6 else 0.9)  # six: the median is between, 0.55


def test_slow_calls_hide_no_forged_time():
    # Two calls in their true 1 ms, ten twice as slow: two of twelve are enough to tell.
    assert hidden_ms([1.15] * 2 + [2.15] * 10, [0.5] * 12, 0.15) == pytest.approx(0.5)
    # Fewer make it no better: the clock shows more, not less.
    assert hidden_ms([1.15] + [2.15] * 11, [0.5] * 12, 0.15) == pytest.approx(1.5)


def test_what_passes_is_the_time_of_the_fastest_eighth_of_the_calls_or_more():
    """The bound that the module states, for any mixture of true times, forged ones and disturbances."""
    rng = random.Random(0)
    passed = 0
    for _ in range(2000):
        true = [rng.choice((0.3, 0.32, 1.0)) for _ in range(12)]
        walls = [0.15 + each + rng.choice((0.0, 0.0, 0.14)) for each in true]
        share = rng.choice((0.9, 0.95, 0.99))
        stated = [rng.choice((each, share * each)) for each in true]
        if hidden_ms(walls, stated, 0.15) == 0.0:
            passed += 1
            clock = lower_eighth(walls)
            assert median(stated) >= lower_eighth(true) - 0.005 - 0.03 * 0.15 - 0.001 * clock - 1e-12
    assert 200 < passed < 2000


def test_floor_is_cold_inputs_and_what_the_cache_cannot_hold():
    # 300 MB in, 150 MB out with 50 MB of cache, at 4000 GB/s: 400e6 / 4000e6 ms
    assert floor_ms(300_000_000, 150_000_000, 50_000_000, 4000.0) == pytest.approx(0.1)


def test_what_the_clock_shows_for_a_task_counts_where_it_is_more() -> None:
    """By hand: usual at 100 bytes is 0.2, so 0.05 more at every size; everywhere 0.6 of which 0.25 are usual by then."""
    table = OverheadTable(Overhead(((0, 0.1), (200, 0.3))), Overhead(((0, 0.5), (1, 0.5))), 0.06, everywhere_ms=0.2)
    more = table.at_least(TaskOverhead(100, 1, 0.25, 0.6))
    assert more.ahead.ms(100, 1) == pytest.approx(0.25)
    assert more.ahead.ms(200, 1) == pytest.approx(0.35)
    assert more.everywhere_ms == pytest.approx(0.35)
    assert table.at_least(TaskOverhead(100, 1, 0.15, 0.3)) == table  # it is less: the table holds
    assert table.at_least(None) is table
    assert replace(table, everywhere_ms=None).at_least(TaskOverhead(100, 1, 0.25, 0.6)).everywhere_ms is None
