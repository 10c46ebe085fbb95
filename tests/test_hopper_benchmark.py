"""benchmarks/hopper.py without a GPU: its table by hand, what it leaves out after a hang, and that its cases print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hopper_clock
from benchmarks.hopper import HUNG, MOST_HANGS, Rows
from benchmarks.hopper_build import Case
from benchmarks.hopper_cases import GROUPS

CASE = Case("square", "products", "", {"start": {}, "tma_1": {}, "tma_2": {}}, 4e9, 2e9, ("eager", "product"))


def test_the_table_by_hand(tmp_path: Path) -> None:
    """4 GFLOP in 2 ms are 2 TFLOPS, 2 GB in 2 ms are 1000 GB/s; the fastest candidate is wrong and does not count."""
    rows = Rows(tmp_path)
    for label, ms, error in (
        ("eager", 3.0, 1e-3), ("product", 1.0, 1e-3), ("start", 4.0, 1e-3), ("tma_1", 2.0, 3e-3), ("tma_2", 1.5, 0.5)
    ):  # fmt: skip
        rows.add({"case": "square", "label": label, "error": error})
        rows.add({"case": "square", "label": label, "ms": ms})
    last = rows.tabulate([CASE]).splitlines()[-1]
    assert last == "| square | tma_1 | 2.0000 | 2 | 1000 | eager | 3.0000 | 1.500 | 0.500 | start 0.750 |"
    assert (tmp_path / "table.md").read_text().endswith(f"{last}\n")
    written = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert written == rows.all and len(written) == 10


def test_what_hangs_is_counted_by_the_first_word_of_its_label(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    for label in ("special_a", "special_b", "turns_a"):
        rows.add({"case": "square", "label": label, "failure": HUNG})
    assert rows.hung("special_c") == MOST_HANGS > rows.hung("turns_b") and rows.hung("start") == 0


def test_cases_have_names_of_their_own_and_a_start() -> None:
    cases = [case for group in GROUPS for case in GROUPS[group]()]
    assert len({case.name for case in cases}) == len(cases) > 15
    assert all("start" in case.settings and case.flops > 0 and case.bytes > 0 for case in cases)
    assert {case.group for case in cases} == set(GROUPS)


def test_only_rounds_of_the_finalists_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that has just begun is fast: what is timed then alone must not win."""
    rounds = {"made": 0}

    def timed(call: Callable[[], float], count: int, cold: object) -> list[float]:
        rounds["made"] += 1
        return [call() * (0.8 if rounds["made"] <= hopper_clock.LOOKS * len(running) else 1.0)] * count

    speeds = {"eager": 1.0, "start": 3.0} | {f"tma_{at}": 1.1 + at / 100 for at in range(8)}
    running: dict[str, Any] = {label: lambda ms=ms: ms for label, ms in speeds.items()}
    monkeypatch.setattr(hopper_clock, "_timed", timed)
    found = hopper_clock._rounds(running, {"eager"}, None, rounds=5, seed=0)  # type: ignore[arg-type]
    assert found == {label: [speeds[label]] * 5 for label in ("eager", "start", *(f"tma_{at}" for at in range(6)))}
