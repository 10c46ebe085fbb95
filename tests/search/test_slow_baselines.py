"""Baselines that take minutes: a search goes on without them, waits at its end, and asks as if they had never come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mtmc.cli.console import summary
from mtmc.errors import EvaluatorError
from mtmc.evaluate.shared import EvaluatorServer, RemoteEvaluator, Shared
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import Budget, Progress, SearchResult, load, resume, search
from mtmc.search.run_state import Watch
from mtmc.task import Task

NAME = "slow compiler"
BESIDE = Outcome("not_run", diagnosis=Diagnosis("time", "Beside", "not yet"))
FOUND = Outcome("ok", 3.0, runtime_kind="estimated")


class Slow(FakeEvaluator):
    """A fake whose second compiler ends when it is told to. enough: evaluations after which it ends by itself."""

    def __init__(self, enough: int | None = None) -> None:
        super().__init__()
        self.ready, self.begun, self.enough, self.evaluated = threading.Event(), 0, enough, 0
        self.error: Exception | None = None

    def baselines(self, task: Task) -> dict[str, Outcome]:
        return {**super().baselines(task), NAME: BESIDE}

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        self.begun += 1
        assert self.ready.wait(60.0)
        if self.error is not None:
            raise self.error
        return {NAME: FOUND}

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.evaluated += len(requests)
        if self.enough is not None and self.evaluated >= self.enough:
            self.ready.set()
        return super().evaluate(requests)


def searched(
    evaluator: FakeEvaluator, out: Path | None = None, budget: int | Budget = 12, **more: object
) -> SearchResult:
    parts = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator}
    return search(FAKE_TASK, budget=budget, out=out, **parts, **more)  # type: ignore[arg-type]


def resumed(evaluator: FakeEvaluator, out: Path, budget: int | Budget | None = None) -> SearchResult:
    parts = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator}
    return resume(out, budget=budget, **parts)  # type: ignore[arg-type]


def test_a_search_does_not_wait_until_its_end(tmp_path: Path) -> None:
    evaluator = Slow(enough=12)
    result = searched(evaluator, tmp_path / "run")
    assert evaluator.begun == 1 and result.evaluations == 12
    assert result.baselines[NAME] == FOUND == load(tmp_path / "run").baselines[NAME]
    assert list(result.baselines) == ["fake compiler", NAME]
    assert f"| {NAME} |" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")


def test_who_watches_is_told_what_it_waits_for() -> None:
    evaluator, waits = Slow(), list[str]()

    def told(progress: Progress) -> None:
        waits.append(progress.waits)
        if progress.waits:
            assert progress.finished is None and progress.evaluations == 12
            evaluator.ready.set()

    assert searched(evaluator, progress=told).baselines[NAME] == FOUND
    assert waits.count(NAME) == 1 and waits[-1] == "", "at the end, and not after it"


def test_wall_time_ends_the_waiting_and_another_run_takes_it_up(tmp_path: Path) -> None:
    evaluator = Slow()
    began = time.monotonic()
    result = searched(evaluator, tmp_path / "run", Budget(12, wall_seconds=2.0))
    assert result.finished is not None and result.baselines[NAME] == BESIDE
    assert f"{NAME} has no time: not yet." in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "not run: not yet" in summary(result)
    assert time.monotonic() - began < 30.0, "the compiler goes on for 60"
    evaluator.ready.set()
    again = Slow(enough=0)
    again.ready.set()
    assert resumed(again, tmp_path / "run", Budget(12, wall_seconds=60.0)).baselines[NAME] == FOUND
    assert again.begun == 1
    last = Slow()
    assert resumed(last, tmp_path / "run").baselines[NAME] == FOUND and last.begun == 0, (
        "what is recorded is not asked for"
    )


def test_who_stops_a_search_ends_its_waiting() -> None:
    from mtmc.search.opening import plan
    from mtmc.search.run import grown

    evaluator = Slow()
    parts = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator}
    watch = Watch(lambda progress: watch.stopping.set() if progress.waits else None)
    result = grown(plan(FAKE_TASK, parts, 12, 0, 1, 2, "", False, None), None, watch, dumps=False)  # type: ignore[arg-type]
    assert result.baselines[NAME] == BESIDE and result.evaluations == 12
    evaluator.ready.set()


@pytest.mark.parametrize("error", [EvaluatorError("no memory is left"), RuntimeError("cannot schedule new futures")])
def test_one_that_fails_takes_nothing_along(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    evaluator = Slow(enough=1)
    evaluator.error = error
    with caplog.at_level(logging.DEBUG):
        result = searched(evaluator)
    assert result.baselines[NAME] == BESIDE and result.evaluations == 12 and result.finished is not None
    assert f"{NAME} was not measured" in caplog.text and str(error) in caplog.text


class Reading(FakeCoder):
    """A coder that notes which baselines it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told = set[str]()

    def edit(self, request):  # type: ignore[no-untyped-def]
        self.told |= {f"{name} {outcome.status}" for name, outcome in request.run.baselines.items()}
        return super().edit(request)


def test_no_question_hangs_on_when_it_came(tmp_path: Path) -> None:
    def grown_by(coder: FakeCoder, out: Path, budget: int) -> SearchResult:
        parts = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": coder, "evaluator": Slow(enough=1)}
        return search(FAKE_TASK, budget=budget, out=out, **parts)  # type: ignore[arg-type]

    whole, first, later = Reading(), Reading(), Reading()
    straight = grown_by(whole, tmp_path / "straight", 20)
    grown_by(first, tmp_path / "resumed", 9)
    parts = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": later, "evaluator": Slow(enough=1)}
    gone_on = resume(tmp_path / "resumed", budget=20, **parts)  # type: ignore[arg-type]
    assert gone_on.baselines[NAME] == FOUND and len(gone_on.tree) == len(straight.tree)
    assert [node.source for node in gone_on.tree] == [node.source for node in straight.tree]
    assert whole.told == first.told == later.told == {"fake compiler ok", f"{NAME} not_run"}


def test_they_are_asked_for_from_other_processes() -> None:
    evaluator = Slow(enough=0)
    evaluator.ready.set()
    server = EvaluatorServer(evaluator)
    try:
        remote = RemoteEvaluator(server.address, server.key)
        assert remote.slow_baselines(FAKE_TASK) == Shared(remote, {}).slow_baselines(FAKE_TASK) == {NAME: FOUND}
    finally:
        server.close()
