"""The figures of the tables, against numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mtmc.bench.figures import by_level, fast_p, geometric_mean, level_figures, mean, speedups
from mtmc.bench.report import left_out, markdown, note, untimed, without_dissolved
from mtmc.bench.row import AUTOTUNE, BETTER, COMPILE, EAGER, Failure, row_from_json, row_to_json
from tests.bench.faults import row

ROWS = [
    row("a", 4.0, triton=True, roofline=0.5, evaluations=3, gpu_seconds=1.5, seconds=2.0, tokens=10, usd=0.25),
    row("b", 2.0, triton=True, roofline=0.7, evaluations=2),
    row("c", 1.0, is_reference=True),
    row("d", 0.5),
    row("e", 8.0, correct=False),
    row("f", failure=Failure("not_loaded", "no file")),
]
"""Speedups over eager: 4, 2, 1, 0.5; a wrong one and one without a result have none."""


def test_fast_p_is_of_all_problems_and_strict() -> None:
    assert fast_p(ROWS, 1.0) == pytest.approx(2 / 6)  # 4 and 2; 1 is not above 1, 8 is not right
    assert fast_p(ROWS, 2.0) == pytest.approx(1 / 6)
    assert fast_p(ROWS, 0.0) == pytest.approx(4 / 6)
    assert fast_p(ROWS, 1.0, COMPILE) == pytest.approx(1 / 6)  # halves: 2, 1, 0.5, 0.25
    assert fast_p([], 1.0) == 0.0


def test_means_are_of_what_is_known() -> None:
    over = speedups(ROWS, EAGER)
    assert over.count == 4
    assert over.mean == pytest.approx((4 + 2 + 1 + 0.5) / 4)
    assert over.geometric == pytest.approx((4 * 2 * 1 * 0.5) ** 0.25)  # 2 ** 0.5
    assert over.least == 0.5
    assert over.slower == 1
    assert speedups(ROWS, AUTOTUNE).geometric == pytest.approx(2**0.5 / 4)
    assert speedups([], EAGER).mean is None
    assert (mean([]), geometric_mean([])) == (None, None)
    assert geometric_mean([0.5, 8.0]) == pytest.approx(2.0)


def test_the_better_mode_of_torch_compile_is_chosen_problem_by_problem_and_the_worst_problem_is_told() -> None:
    """1 ms against 3 and 2, 1 and 4, 0.5 and none, and one without either: 2, 1 and 0.5, whose geometric mean is 1."""
    told = {"a": {COMPILE: 3.0, AUTOTUNE: 2.0}, "b": {COMPILE: 1.0, AUTOTUNE: 4.0}, "c": {COMPILE: 0.5}, "d": {}}
    rows = [row(name, 6.0, baselines_ms={EAGER: 6.0, **modes}) for name, modes in told.items()]
    over = speedups(rows, BETTER)
    assert (over.count, over.least, over.worst, over.slower) == (3, 0.5, "level1/c", 1)
    assert over.mean == pytest.approx((2 + 1 + 0.5) / 3) and over.geometric == pytest.approx(1.0)
    text = markdown(rows, [], {}, picture=False)
    assert "| over better compile, geometric mean | 1.00x (3) |" in text
    assert "| worst over better compile | 0.50x, level1/c |" in text
    assert "| a | 1 ms | 6 ms | 3 ms | 2 ms | 6.00x | 3.00x | 2.00x | 2.00x |" in text


def test_one_mode_alone_has_no_better_one() -> None:
    text = markdown([row("a", 4.0, baselines_ms={EAGER: 4.0, COMPILE: 2.0})], [], {}, picture=False)
    assert "| over compile, mean | 2.00x (1) |" in text and "better compile," not in text


def test_a_loss_is_below_0_98() -> None:
    assert speedups([row("a", 0.979), row("b", 0.98), row("c", 0.99)], EAGER).slower == 1


def test_figures_of_a_level() -> None:
    found = level_figures("level1", ROWS)
    assert (found.problems, found.correct, found.triton, found.failed) == (6, 4, 2, 1)
    assert found.roofline == pytest.approx(0.6)  # of the two that are known
    assert (found.evaluations, found.gpu_seconds, found.seconds, found.tokens, found.usd) == (5, 1.5, 2.0, 10, 0.25)


def test_several_levels_have_a_column_for_all() -> None:
    assert [each.level for each in by_level(ROWS)] == ["level1"]
    both = by_level([*ROWS, row("g", 2.0, level="level2")])
    assert [each.level for each in both] == ["level1", "level2", "all"]
    assert [each.problems for each in both] == [6, 1, 7]
    assert both[2].over[EAGER].geometric == pytest.approx((4 * 2 * 1 * 0.5 * 2) ** 0.2)
    assert by_level([]) == []


def test_means_without_the_problems_whose_work_dissolves_are_told_apart() -> None:
    """A version at 100 times the roofline does not do the reference's work: 4, 2, 1 and 0.5 without it, 2 ** 0.5."""
    rows = [*ROWS, row("constant", 300.0, roofline=100.0)]
    assert level_figures("level1", rows).roofline == pytest.approx(0.6)
    told = without_dissolved(rows)
    assert told.startswith("level1 without constant, whose") and "geometric mean 1.41x over eager" in told
    assert without_dissolved(ROWS) == ""


def test_a_problem_whose_output_tells_nothing_has_no_speedup_and_is_named() -> None:
    silent = row(
        "zeros", 348.0, undecided="its output says too little to tell work from none: output 0: zeros pass for it"
    )
    rows = [*ROWS, silent]
    [figures] = by_level(rows)
    assert silent.speedup() is None and figures.over[EAGER] == level_figures("level1", ROWS).over[EAGER]
    assert figures.problems == 7 and fast_p(rows, 1.0) == pytest.approx(2 / 7)
    assert "level1/zeros" in left_out(rows) and "too little" in left_out(rows) and left_out(ROWS) == ""
    assert note(silent).startswith("no reward: its output says too little")
    text = markdown(rows, [], {}, picture=False)
    assert left_out(rows) in text and "348.00x" not in text


def test_rows_of_before_there_was_such_a_thing_can_be_read() -> None:
    old = row_to_json(ROWS[0])
    del old["untimed"]  # of which a row did not always tell
    del old["undecided"]
    assert row_from_json(old) == ROWS[0]


def test_a_baseline_without_a_time_is_named_with_its_reason() -> None:
    late = {AUTOTUNE: "timeout: Timeout: not compiled after 900 s"}
    rows = [replace(row, untimed=late) for row in ROWS[:2]] + list(ROWS[2:])
    assert untimed(ROWS) == "" and untimed(rows) in markdown(rows, [], {}, False)
    assert untimed(rows).splitlines()[-1] == (
        f"- {AUTOTUNE}: {ROWS[0].id}, {ROWS[1].id} (timeout: Timeout: not compiled after 900 s)"
    )
    assert all(row_from_json(json.loads(json.dumps(row_to_json(row)))) == row for row in rows)
