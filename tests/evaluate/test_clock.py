"""Medians, intervals, stopping and the agreement of two clocks, by hand."""

import pytest

from mtmc.evaluate.measure.clock import Overhead, Patience, floor_ms, hidden_ms, summarize


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


def test_patience_ends_with_precision_or_count_or_time():
    patience = Patience(least=4, most=8, precision=0.01, seconds=1.0)
    assert not patience.enough([1.0] * 3, 5.0)
    assert patience.enough([1.0] * 4, 0.0)
    noisy = [1.0, 2.0, 3.0, 4.0]
    assert not patience.enough(noisy, 0.0)
    assert patience.enough(noisy, 1.0)
    assert patience.enough(noisy * 2, 0.0)
    assert patience.enough([0.00100, 0.00102, 0.00104, 0.00106], 0.0)  # within three ticks of the device's clock


def test_overhead_between_and_beyond_its_points():
    overhead = Overhead(((0, 0.15), (1000, 0.16), (3000, 0.20)))
    assert overhead.ms(0, 1) == pytest.approx(0.15)
    assert overhead.ms(2000, 1) == pytest.approx(0.18)
    assert overhead.ms(5000, 1) == pytest.approx(0.24)
    assert overhead.ms(0, 3) == pytest.approx(0.158)


def test_a_stated_time_must_explain_the_clock():
    # 1 ms of work: the clock shows 1.15, of which 0.15 are overhead.
    assert hidden_ms([1.15, 1.16, 1.15], [1.0, 1.0, 1.0], 0.15) == 0.0
    assert hidden_ms([1.15, 1.16, 1.15], [0.5, 0.5, 0.5], 0.15) == pytest.approx(0.5)
    # Within 5 us + 3% of 1.15 ms nothing is said.
    assert hidden_ms([1.15], [0.97], 0.15) == 0.0


def test_floor_is_cold_inputs_and_what_the_cache_cannot_hold():
    # 300 MB in, 150 MB out with 50 MB of cache, at 4000 GB/s: 400e6 / 4000e6 ms
    assert floor_ms(300_000_000, 150_000_000, 50_000_000, 4000.0) == pytest.approx(0.1)
