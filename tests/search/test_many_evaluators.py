"""The benchmark of many evaluators: its times and rates by hand, and all of it from end to end in next to no time."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import many_evaluators
from benchmarks.many_evaluators import lognormal, of_run, of_stages, rate, recorded_stages, saturation
from mtmc.fakes import FakeEvaluator
from tests.test_resume import begin


def test_times_have_the_recorded_median_and_90th_percentile() -> None:
    assert lognormal(0.5, 0.7, 0.5) == pytest.approx(0.5) and lognormal(0.5, 0.7, 0.9) == pytest.approx(0.7)
    assert lognormal(0.5, 0.7, 0.1) == pytest.approx(0.5 * 0.5 / 0.7)
    times = sorted(map(of_stages({"build": (0.5, 0.7)}), map(str, range(5000))))
    assert times[2500] == pytest.approx(0.5, rel=0.02) and times[4500] == pytest.approx(0.7, rel=0.03)
    both = of_stages({"build": (0.5, 0.7), "check": (0.1, 0.1)})
    assert statistics.mean(map(both, map(str, range(5000)))) == pytest.approx(statistics.mean(times) + 0.1)


def test_the_record_has_the_stages(tmp_path: Path) -> None:
    (tmp_path / "record.md").write_text(
        "| stage | median s | p90 s | total s | evaluations |\n|---|---|---|---|---|\n| build | 0.524 | 0.691 | 2.4 | 2 |\n"
    )
    assert recorded_stages(tmp_path / "record.md") == {"build": (0.524, 0.691)}
    stages = recorded_stages(many_evaluators.RECORD)
    assert 0 < stages["build"][0] <= stages["build"][1] and stages["time"][0] > 0


def test_a_rate_is_that_of_the_middle() -> None:
    # Two evaluators, two ends a second; the first two and the last two ends are left out: 3 in 1 s between 1 and 2.
    assert rate([0.0, 0.5, 1.0, 1.5, 2.0, 9.0, 99.0], 2) == pytest.approx(2.0)


def test_where_it_saturates_is_told_in_words() -> None:
    assert (
        saturation([(8, 0.99), (16, 0.95)])
        == "It keeps up to 16 evaluators at least 90% busy: it does not saturate here."
    )
    assert saturation([(8, 0.99), (16, 0.6)]) == "It keeps 8 evaluators at least 90% busy, and saturates before 16."


def test_times_of_a_recorded_run(tmp_path: Path) -> None:
    begin(tmp_path / "run", FakeEvaluator(seconds=0.002), budget=5)
    assert all(0.002 <= of_run(tmp_path / "run")(str(number)) < 1.0 for number in range(20))


def test_the_benchmark_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--evaluators", "2", "4", "--rounds", "8", "--scale", "0.001", "--out", str(tmp_path / "found")]
    monkeypatch.setattr(sys, "argv", ["many_evaluators.py", *given])
    assert many_evaluators.main() == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert [found[name]["evaluations"] for name in ("2", "4")] == [17, 33]
    assert "saturate" in (tmp_path / "found.md").read_text()
