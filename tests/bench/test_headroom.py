"""What searches leave goes to problems that are below their bound: the shares by hand, and a whole benchmark."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mtmc.bench import BenchSettings, bench, run_bench
from mtmc.bench.bench import Quiet
from mtmc.bench.folder import BenchFolder
from mtmc.bench.headroom import headroom, left, shares
from mtmc.bench.row import Failure, Row
from mtmc.bench.solve import SearchOptions
from mtmc.bench.suites import SUITES
from mtmc.errors import ConfigError
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import Budget, load
from mtmc.task import Task
from tests.bench.faults import Faults, problem, row

BUDGET = Budget(evaluations=10, roofline=0.8)
SPENT = "10 evaluations are spent"


def of(name: str, roofline: float | None, evaluations: int = 10, finished: str = SPENT, **more: Any) -> Row:
    return row(name, 2.0, roofline=roofline, evaluations=evaluations, finished=finished, **more)


def test_shares_by_hand() -> None:
    rows = [
        of("half", 0.4),
        of("quarter", 0.2),
        of("there", 0.8, 4, "the best version reaches 0.80"),
        of("unknown", None),
    ]
    assert [headroom(each, BUDGET) for each in rows] == pytest.approx([1.0, 2.0, 0.0, 0.0])
    spent = {each.id: each.evaluations for each in rows}
    assert left(rows, spent, BUDGET) == 6
    assert shares(rows, BUDGET, 6) == {"level1/half": 2, "level1/quarter": 4}
    # 7/3 and 14/3: the rest of one goes to the larger remainder
    assert shares(rows, BUDGET, 7) == {"level1/half": 2, "level1/quarter": 5}
    assert shares(rows, BUDGET, 1) == {"level1/quarter": 1}
    assert shares(rows, BUDGET, 0) == shares(rows[2:], BUDGET, 6) == {}
    assert headroom(rows[0], Budget(10)) == pytest.approx(math.log2(1 / 0.4)), (
        "of the roofline itself where none is asked"
    )


def test_who_has_nothing_to_give_or_to_gain() -> None:
    crash, too_large = (Row("level1", 1, kind, "", Failure(kind, "no")) for kind in ("crash", "too_large"))  # type: ignore[arg-type]
    further = of("further", 0.4, 13, "13 evaluations are spent")
    rows = [crash, too_large, further, of("over", 1.5), of("nothing left to try", 0.1, 5, "every action was tried")]
    spent = {each.id: each.evaluations for each in rows}
    assert left(rows, spent, BUDGET) == 10 - 3 + 0 + 5, "of what cannot be tried again, less what was given before"
    assert [headroom(each, BUDGET) > 0 for each in rows] == [False, False, True, False, False]
    assert left([further], {further.id: 13}, BUDGET) == 0


class Unequal(FakeEvaluator):
    """The root of the first task that it sees is at its bound from the start, those of others never get there. Nothing is
    faster than that: behind a baseline a search goes on."""

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """None."""
        return {}

    def evaluate(self, requests: list[EvaluationRequest]) -> list[Outcome]:  # type: ignore[override]
        """See `protocols.Evaluator.evaluate`."""
        return [
            Outcome("ok", each.runtime_ms, runtime_kind="estimated", metrics={"roofline": self._share(request)})
            if each.ok
            else each
            for request, each in zip(requests, super().evaluate(requests), strict=True)
        ]

    def _share(self, request: EvaluationRequest) -> float:
        return 0.95 if "# good" in request.task.source else 0.3


class Named(Faults):
    """Each text says its name."""

    def source(self, problem: Any) -> str:
        """See `mtmc.bench.problem.Suite`."""
        return f"# {problem.name}\n" + super().source(problem)


def run(folder: Path, watcher: Any = None, clock: Any = None, **settings: Any) -> bench.BenchResult:
    parts: dict[Any, Any] = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": FakeCoder()}
    given = BenchSettings(suite="named", **{"problems": ("good", "other"), "headroom": True, **settings})
    options = SearchOptions(Budget(8, roofline=0.9))
    more = {} if clock is None else {"clock": clock}
    return run_bench(given, {**parts, "evaluator": Unequal()}, folder, options=options, watcher=watcher, **more)


class Stopping(Quiet):
    """Says when the second round begins. after: evaluations of it until `late`."""

    def __init__(self, after: int) -> None:
        self.rounds, self.late, self._after = 0, False, after

    def begin(self, problems: int) -> None:
        """See `Watcher`."""
        self.rounds += 1

    def moved(self, problem: Any, progress: Any) -> None:
        """See `Watcher`."""
        self.late = self.rounds > 1 and progress.evaluations >= self._after


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "named", Named)  # type: ignore[arg-type]


def test_a_problem_below_its_bound_gets_what_another_leaves(tmp_path: Path) -> None:
    without = run(tmp_path / "without", headroom=False)
    assert [each.evaluations for each in without.rows] == [1, 8]
    watcher = Stopping(99)
    result = run(tmp_path / "with", watcher)
    assert [each.evaluations for each in result.rows] == [1, 15] and watcher.rounds == 2, "16 in all, and no more"
    assert result.rows[1].finished == "15 evaluations are spent"
    assert len(load(tmp_path / "with" / "runs" / "level1" / "other", strategy=FakeStrategy()).tree) > 8
    assert "went to problems below their bound" in (tmp_path / "with" / "bench.md").read_text()
    again = Stopping(99)
    assert run(tmp_path / "with", again).rows == result.rows and again.rounds == 0, "nothing is given twice"
    assert BenchFolder(tmp_path / "with").find(problem("other", 5)) == result.rows[1]


def test_one_that_was_cut_off_gets_no_more_than_its_share(tmp_path: Path) -> None:
    stopping = Stopping(10)
    first = run(tmp_path, stopping, clock=lambda: 1e6 if stopping.late else 0.0, minutes=1)
    assert [each.evaluations for each in first.rows] == [1, 8] and stopping.rounds == 2, "its row is from before"
    assert [each.evaluations for each in run(tmp_path).rows] == [1, 15]


def test_it_is_for_searches(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="headroom cannot be true with score"):
        BenchSettings(headroom=True, score="answers")
