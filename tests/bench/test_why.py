"""Why a problem is not faster: each rule, its bound, and the figures that it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.bench.why import ENOUGH, REACHABLE, WhyFacts, why

SLOW = WhyFacts("eager", baseline_ms=1.0, best_ms=1.0, roofline=0.5, kernel_ms=1.2, made=3)
"""The reference itself at half of the roofline; the fastest kernel takes 1.2 ms."""


def test_enough_needs_no_reason() -> None:
    assert why(replace(SLOW, best_ms=1 / ENOUGH)) is None
    assert why(replace(SLOW, best_ms=0.5)) is None


def test_at_the_roof_where_not_even_a_version_near_it_would_gain_enough() -> None:
    # At 0.9 of the roofline a version would take 0.87 / 0.9 ms: 1 / 0.9667 = 1.034x.
    found = why(replace(SLOW, roofline=0.87))
    assert found is not None and found.kind == "at_the_roof"
    assert found.text == "eager takes 1 ms, 87% of the roofline: at 90% of it a version would be 1.03x"
    # The bound: baseline / (R best / REACHABLE) = ENOUGH.
    bound = REACHABLE / ENOUGH
    assert why(replace(SLOW, roofline=bound * 1.001)).kind == "at_the_roof"  # type: ignore[union-attr]
    assert why(replace(SLOW, roofline=bound * 0.999)).kind == "library_better"  # type: ignore[union-attr]


def test_the_roof_is_that_of_the_work_not_of_a_slow_version() -> None:
    # The version is at 0.9 of the roofline and the baseline twice as slow as it: that is a gain of 2.
    assert why(replace(SLOW, baseline_ms=2.0, roofline=0.9)) is None
    # The version is slow, and the baseline, which takes half of its time, is at the roof.
    found = why(WhyFacts("torch.compile", baseline_ms=0.5, best_ms=1.0, roofline=0.45, kernel_ms=1.0, made=1))
    assert found is not None and found.kind == "at_the_roof"
    assert found.text == "torch.compile takes 0.5 ms, 90% of the roofline: at 90% of it a version would be 1.00x"


def test_launch_bound_where_the_host_takes_longer_for_a_call_than_the_device() -> None:
    small = replace(SLOW, baseline_ms=0.126, best_ms=0.21, kernels=5, device_ms=0.118, call_ms=0.21)
    found = why(small)
    assert found is not None and found.kind == "launch_bound"
    assert found.text == "its time is launches: the host takes 0.21 ms for 5 launches, the device takes 0.118 ms of it"
    assert why(replace(small, call_ms=0.129)).kind != "launch_bound"  # type: ignore[union-attr]
    assert why(replace(small, call_ms=None)).kind != "launch_bound"  # type: ignore[union-attr]


def test_launch_bound_where_launches_take_half_of_it() -> None:
    small = replace(SLOW, baseline_ms=0.02, best_ms=0.02, kernels=4, launch_us=2.5)
    found = why(small)
    assert found is not None and found.kind == "launch_bound"
    assert found.text == "4 launches of 2.5 \u00b5s are 50% of its 20 \u00b5s"
    assert why(replace(small, kernels=3.9)).kind != "launch_bound"  # type: ignore[union-attr]
    assert why(replace(small, launch_us=None)).kind != "launch_bound"  # type: ignore[union-attr]


def test_template_missing_names_the_ops() -> None:
    found = why(replace(SLOW, uncovered={"conv2d": 2, "cumsum": 1}, ops=7))
    assert found is not None and found.kind == "template_missing"
    assert found.text == "no kernel template covers conv2d (2), cumsum: 3 of 7 steps stay with the library"
    told = why(replace(SLOW, uncovered={"fft_rfft": 2, "masked_select": 1}, ops=7))
    assert told is not None and "covers fft_rfft (2: a Fourier transform of more than 512 numbers" in told.text
    assert "masked_select (how many elements it gives hangs on the mask): 3 of 7" in told.text
    many = why(replace(SLOW, uncovered=dict.fromkeys("abcdef", 1), ops=6))
    assert many is not None and "a, b, c, d and 2 more: 6 of 6" in many.text
    assert why(replace(SLOW, uncovered={})).kind == "library_better"  # type: ignore[union-attr]


def test_without_a_right_kernel() -> None:
    found = why(replace(SLOW, kernel_ms=None, made=3, statuses={"wrong_result": 1, "build_error": 2}))
    assert found is not None and found.kind == "kernels_fail"
    assert found.text == "none of 3 versions with a kernel is right: 2 build_error, 1 wrong_result"
    none = why(replace(SLOW, kernel_ms=None, made=0, finished="1 evaluations are spent"))
    assert none is not None and none.kind == "nothing_tried"
    assert none.text == "no version with a kernel was made: 1 evaluations are spent"


def test_library_better_gives_both_times() -> None:
    found = why(SLOW)
    assert found is not None and found.kind == "library_better"
    # R is that of the best version: the kernel, which takes 1.2 times as long, is at 0.5 / 1.2.
    assert found.text == "the fastest right version with a kernel takes 1.2 ms (42% of the roofline), eager 1 ms"
    unknown = why(replace(SLOW, roofline=None))
    assert unknown is not None and "roofline" not in unknown.text


def test_a_small_gain_is_what_the_search_found() -> None:
    found = why(replace(SLOW, best_ms=0.97, kernel_ms=0.97, finished="48 evaluations are spent"))
    assert found is not None and found.kind == "ended"
    assert "1.03x over eager; the search ended: 48 evaluations are spent" in found.text


@pytest.mark.parametrize("roofline", [0.0, 1e-9])
def test_a_roofline_of_nothing_is_no_roof(roofline: float) -> None:
    assert why(replace(SLOW, roofline=roofline)).kind == "library_better"  # type: ignore[union-attr]
