"""The benchmark of a search's places: its times by hand, and all of it from end to end with times that are next to none."""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import utilization
from benchmarks.utilization import Slow, exponential
from mtmc.fakes import FAKE_TASK, draw
from mtmc.protocols import EvaluationRequest


def test_times_are_exponentially_distributed_and_follow_from_the_text() -> None:
    assert exponential(2.0, "a") == pytest.approx(-2.0 * math.log(1.0 - draw("seconds", "a")))
    times = [exponential(0.5, str(number)) for number in range(20_000)]
    # Mean 0.5 with a standard error of 0.0035; median 0.5 log 2; a share of exp(-2) lasts longer than twice the mean.
    assert statistics.mean(times) == pytest.approx(0.5, abs=0.014)
    assert statistics.median(times) == pytest.approx(0.5 * math.log(2.0), abs=0.014)
    assert sum(time > 1.0 for time in times) / len(times) == pytest.approx(math.exp(-2.0), abs=0.01)


def test_the_roots_own_evaluation_does_not_count() -> None:
    evaluator = Slow(failing=0.0, mean=0.001)
    evaluator.evaluate([EvaluationRequest(FAKE_TASK, "class ModelNew: ...\n")])
    assert (evaluator.busy, evaluator.began) == (0.0, math.inf)
    evaluator.evaluate([EvaluationRequest(FAKE_TASK, "# fuse(op0;)\nclass ModelNew: ...\n")])
    assert 0.0 < evaluator.busy <= evaluator.ended - evaluator.began


def test_the_benchmark_tells_both_figures_of_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--batches", "2", "--rounds", "5", "--mean", "0.0001", "--nodes", "15", "--out", str(tmp_path / "found")]
    monkeypatch.setattr(sys, "argv", ["utilization.py", *given])
    missed = utilization.main()
    found = json.loads((tmp_path / "found.json").read_text())
    rows = {name: found[name] for name in ("batch by batch, 2", "asynchronous, 2")}
    assert all(0.0 < each["utilization"] <= 1.0 and each["ms"] > 0.0 for each in rows.values())
    assert missed == int("Missed: " in (tmp_path / "found.md").read_text())
