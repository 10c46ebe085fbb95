"""Problems to rows, with fakes: searched, gone on with, cut off, scored; and the whole benchmark in its processes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtmc.bench import BenchSettings, bench, list_problems, run_bench, worker_pool
from mtmc.bench.bench import Quiet
from mtmc.bench.row import EAGER, Failure, Row
from mtmc.bench.score import score
from mtmc.bench.solve import SearchOptions, Setup, salvage, solve
from mtmc.bench.suites import SUITES
from mtmc.bench.worker_pool import Watcher
from mtmc.errors import ConfigError, EvaluatorError, RunError, TaskError
from mtmc.evaluate.shared import EvaluatorServer, RemoteEvaluator, Shared
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.search import Budget, Progress, load
from mtmc.source.load_inline import translated
from mtmc.store import Store
from tests.agents.test_load_inline import FILE as LOAD_INLINE
from tests.bench.faults import NAMES, Faults, problem

PARTS: dict[Any, Any] = {"strategy": FakeStrategy(), "policy": FakePolicy(), "coder": FakeCoder()}
RECORD = {"name": "lab", "settings": {}}


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite of faults under its name."""
    monkeypatch.setitem(SUITES, "faults", Faults)  # type: ignore[arg-type]


def setup_of(folder: Path, **changes: Any) -> Setup:
    plain = Setup(Faults(), folder, "fp32", PARTS, RECORD, SearchOptions(Budget(12), batch=2))
    return replace(plain, **changes)


def shared(**settings: Any) -> Shared:
    return Shared(FakeEvaluator(**settings), RECORD)


class Refusing(FakeEvaluator):
    """An evaluator that refuses the reference."""

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        raise TaskError("two runs of the reference differ")


def interrupt_after(evaluations: int) -> Any:
    """A progress that ends the process, as it were."""

    def show(progress: Progress) -> None:
        if progress.evaluations >= evaluations:
            raise KeyboardInterrupt

    return show


# --- one problem -------------------------------------------------------------------------------------------------------


def test_a_searched_problem_has_all_its_figures(tmp_path: Path) -> None:
    row = solve(problem(), setup_of(tmp_path), shared())
    result = load(tmp_path / "runs" / "level1" / "good", strategy=FakeStrategy())
    best = result.best
    assert row.failure is None and row.correct and row.verified is None and not row.is_reference
    assert row.best_ms == best.runtime_ms and row.baselines_ms == {"fake compiler": 4.0, EAGER: 8.0}
    assert row.speedup() == best.speedup
    assert (row.evaluations, row.finished) == (12, "12 evaluations are spent")
    assert row.statuses == {"ok": sum(node.outcome.ok for node in result.tree), **row.statuses}
    assert row.roofline == result.tree.best.outcome.metrics["roofline"]
    assert row.tokens == 15 * result.record.spent.calls > 0 and row.usd == pytest.approx(result.record.spent.usd)
    assert row.steps == tuple(node.action.sentence for node in result.tree.path(best.node_id)[1:])  # type: ignore[union-attr]
    assert row.hardware == "H100" and row.runtime_kind == "estimated" and not row.triton


def test_a_run_is_recorded_as_of_its_evaluator(tmp_path: Path) -> None:
    solve(problem(), setup_of(tmp_path), shared())
    store = Store.read(tmp_path / "runs" / "level1" / "good")
    assert store.settings()["evaluator"] == RECORD
    store.close()


def test_verification_is_part_of_being_right(tmp_path: Path) -> None:
    row = solve(problem(), setup_of(tmp_path), shared(rejecting=0.3, failing=0.0))
    assert row.verified is True and row.correct and "rejected" in row.statuses


def test_the_reference_itself_is_at_exactly_one(tmp_path: Path) -> None:
    row = solve(problem(), setup_of(tmp_path, options=SearchOptions(Budget(1))), shared())
    assert row.is_reference and row.correct and row.verified is None
    assert row.speedup() == 1.0 and row.best_ms == row.baselines_ms[EAGER] == 8.0
    assert row.why is not None and row.why.kind == "nothing_tried"


@pytest.mark.parametrize(
    ("name", "evaluator", "kind"),
    [("no_task", FakeEvaluator(), "not_loaded"), ("good", Refusing(), "refused")],
)
def test_what_goes_wrong_is_a_row(tmp_path: Path, name: str, evaluator: FakeEvaluator, kind: str) -> None:
    row = solve(problem(name), setup_of(tmp_path), Shared(evaluator, RECORD))
    assert row.failure is not None and row.failure.kind == kind
    assert row.speedup() is None and not row.correct
    assert not (tmp_path / "runs" / "level1" / name).exists()


def test_a_cut_off_search_is_gone_on_with(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one_by_one = SearchOptions(Budget(12))
    setup = setup_of(tmp_path / "bench", options=one_by_one)
    with pytest.raises(KeyboardInterrupt):
        solve(problem(), setup, shared(log=log), interrupt_after(5))
    row = solve(problem(), setup, shared(log=log))
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked)) == row.evaluations == 12  # nothing twice
    whole = solve(problem(), setup_of(tmp_path / "whole", options=one_by_one), shared())
    assert (row.best_ms, row.steps, row.statuses) == (whole.best_ms, whole.steps, whole.statuses)


def test_a_run_of_another_text_starts_again(tmp_path: Path) -> None:
    solve(problem(), setup_of(tmp_path), shared())
    row = solve(problem(), setup_of(tmp_path, dtype="fp16"), shared())
    assert row.evaluations == 12
    store = Store.read(tmp_path / "runs" / "level1" / "good")
    assert "torch.float16" in store.task().source
    store.close()


def test_what_a_cut_off_run_has_found_counts(tmp_path: Path) -> None:
    setup = setup_of(tmp_path)
    time_is_up = Failure("time", "it took more than 60 s")
    assert salvage(problem(), setup, time_is_up).failure == time_is_up  # there is no run yet
    with pytest.raises(KeyboardInterrupt):
        solve(problem(), setup, shared(), interrupt_after(7))
    row = salvage(problem(), setup, time_is_up)
    assert row.failure is None and row.evaluations >= 7 and row.correct
    assert row.finished == "cut off: it took more than 60 s"


def test_a_search_that_an_error_ends_keeps_what_it_found_and_can_be_gone_on_with(tmp_path: Path) -> None:
    """A fault in how one version's actions are listed had lost the sixteenfold speedup of the versions before."""

    def fail(progress: Progress) -> None:
        if progress.evaluations >= 7:
            raise ValueError("stages wait for each other")

    setup = setup_of(tmp_path)
    row = solve(problem(), setup, shared(), fail)
    assert row.failure is None and row.correct and row.cut_off and row.evaluations >= 7
    assert row.finished == "cut off: ValueError: stages wait for each other"
    whole = solve(problem(), setup, shared())
    assert whole.evaluations == 12 and not whole.cut_off


def test_an_error_before_there_is_a_version_is_the_row(tmp_path: Path) -> None:
    def fail(progress: Progress) -> None:
        raise ValueError("nothing yet")

    row = solve(problem(), setup_of(tmp_path), Shared(Refusing(), RECORD), fail)
    assert row.failure is not None and row.failure.kind == "refused" and not row.correct and not row.cut_off


# --- candidates --------------------------------------------------------------------------------------------------------


def candidates(folder: Path, *texts: str) -> tuple[Path, ...]:
    folder.mkdir(exist_ok=True)
    paths = tuple(folder / f"{number}.py" for number in range(len(texts)))
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def version(*edits: str) -> str:
    """A text that the fake evaluator takes for a version with these edits."""
    return "".join(f"# {each}\n" for each in edits) + "class ModelNew:\n    pass\n"


def test_the_fastest_right_candidate_is_the_row(tmp_path: Path) -> None:
    texts = [version(f"edit {number}") for number in range(6)]
    paths = candidates(tmp_path / "answers", *texts)
    row = score(problem(), setup_of(tmp_path, score={"level1/good": paths}), shared())
    outcomes = FakeEvaluator().evaluate([EvaluationRequest(FAKE_TASK, text) for text in texts])
    right = {path.name: each.runtime_ms for path, each in zip(paths, outcomes, strict=True) if each.runtime_ms}
    assert 1 < len(right) < 6  # some fail
    assert row.candidate == min(right, key=lambda name: right[name]) and row.best_ms == min(right.values())
    assert row.correct and row.evaluations == 7 and row.baselines_ms[EAGER] == 8.0
    assert row.statuses["ok"] == len(right) and sum(row.statuses.values()) == 6


def test_candidates_that_are_wrong_missing_or_rejected(tmp_path: Path) -> None:
    failing = candidates(tmp_path / "answers", version("edit"))
    setup = setup_of(tmp_path, score={"level1/good": failing})
    wrong = score(problem(), setup, shared(failing=1.0))
    assert wrong.failure is None and not wrong.correct and wrong.best_ms is None and wrong.finished
    missing = score(problem("other"), setup, shared())
    assert missing.failure is not None and missing.failure.kind == "no_candidate"
    rejected = score(problem(), setup, shared(failing=0.0, rejecting=1.0))
    assert not rejected.correct and rejected.verified is False and rejected.statuses == {"rejected": 1}


class Reading(FakeEvaluator):
    """An evaluator that keeps what it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.sources = list[str]()

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        self.sources += [each.source for each in requests]
        return super().evaluate(requests)


def test_answers_with_load_inline_are_translated_before_they_are_evaluated(tmp_path: Path) -> None:
    looping = LOAD_INLINE.replace("    A = A.contiguous();", "    for (;;) {}")
    evaluator = Reading()
    paths = candidates(tmp_path / "answers", LOAD_INLINE, looping)
    score(problem(), setup_of(tmp_path, score={"level1/good": paths}), Shared(evaluator, RECORD))
    answers = {source for source in evaluator.sources if "ModelNew(nn.Module)" in source}
    assert answers == {translated(LOAD_INLINE)}  # the other one is refused before
    assert "load_inline" not in translated(LOAD_INLINE)


# --- one evaluator for several processes -------------------------------------------------------------------------------


def test_an_evaluator_is_asked_from_elsewhere(tmp_path: Path) -> None:
    evaluator = FakeEvaluator(rejecting=0.5)
    server = EvaluatorServer(evaluator)
    try:
        remote = RemoteEvaluator(server.address, server.key)
        request = EvaluationRequest(FAKE_TASK, version("a"))
        assert (remote.hardware, remote.verifies) == ("H100", True)
        found: list[list[Outcome]] = []
        threads = [threading.Thread(target=lambda: found.append(remote.evaluate([request]))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [evaluator.evaluate([request])] * 4
        assert remote.baselines(FAKE_TASK) == evaluator.baselines(FAKE_TASK)
        with pytest.raises(EvaluatorError, match="not asked for 'close'"):
            remote._ask("close")
    finally:
        server.close()
        server.close()
    with pytest.raises(EvaluatorError, match="is gone"):
        RemoteEvaluator(server.address, server.key)


def test_errors_cross_as_what_they_are() -> None:
    server = EvaluatorServer(Refusing())
    try:
        with pytest.raises(TaskError, match="two runs of the reference differ"):
            RemoteEvaluator(server.address, server.key).evaluate([])
        with pytest.raises(EvaluatorError, match="is gone"):
            RemoteEvaluator(server.address, b"another key")
    finally:
        server.close()


def test_it_closes_while_it_is_asked() -> None:
    for _ in range(20):
        server = EvaluatorServer(FakeEvaluator())

        def ask(server: EvaluatorServer = server) -> None:
            with contextlib.suppress(EvaluatorError):
                RemoteEvaluator(server.address, server.key).evaluate([EvaluationRequest(FAKE_TASK, version("a"))])

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        server.close()
        for thread in threads:
            thread.join(300)
        assert not any(thread.is_alive() for thread in threads)


def test_only_what_an_evaluator_has_is_offered() -> None:
    class Plain(Evaluator):
        hardware = "A100"

        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            return []

        def close(self) -> None: ...

    server = EvaluatorServer(Plain())
    try:
        remote = RemoteEvaluator(server.address, server.key)
        assert remote.baselines(FAKE_TASK) == remote.slow_baselines(FAKE_TASK) == {} and not remote.verifies
        assert Shared(Plain(), RECORD).baselines(FAKE_TASK) == {}
    finally:
        server.close()


# --- a whole benchmark -------------------------------------------------------------------------------------------------


class Noted(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.taken: list[str] = []
        self.rows: list[Row] = []
        self.evaluations = 0

    def begin(self, problems: int) -> None:
        """See `Watcher`."""
        self.begun.append(problems)

    def started(self, problem: Any) -> None:
        """See `Watcher`."""
        self.taken.append(problem.name)

    def moved(self, problem: Any, progress: Progress) -> None:
        """See `Watcher`."""
        self.evaluations = progress.evaluations

    def ended(self, row: Row) -> None:
        """See `Watcher`."""
        self.rows.append(row)


class Clock:
    """Stands still until `late` says so, then says that every limit is over."""

    def __init__(self, late: Callable[[], bool]) -> None:
        self._late = late

    def __call__(self) -> float:
        return 1e6 if self._late() else 0.0


def run(
    folder: Path, watcher: Watcher | None = None, evaluator: Any = None, clock: Any = None, **settings: Any
) -> bench.BenchResult:
    parts = {**PARTS, "evaluator": evaluator or FakeEvaluator()}
    given = BenchSettings(suite="faults", **{"jobs": 2, **settings})
    clock = clock or Clock(lambda: False)
    return run_bench(given, parts, folder, options=SearchOptions(Budget(6)), watcher=watcher, clock=clock)


def test_it_fails_on_no_problem_and_goes_on_with_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "POLL_S", 0.05)
    watcher, log = Noted(), tmp_path / "log"
    only_one_hangs = Clock(lambda: len(watcher.rows) == len(NAMES) - 1)
    result = run(tmp_path / "b", watcher, FakeEvaluator(log=log), only_one_hangs)
    assert watcher.begun == [5] and sorted(watcher.taken) == sorted(NAMES)
    assert [row.name for row in result.rows] == list(NAMES) and not result.left
    kinds = {row.name: row.failure and row.failure.kind for row in result.rows}
    assert kinds == {"good": None, "hangs": "time", "dies": "crash", "no_task": "not_loaded", "other": None}
    told = {row.name: row.failure.message for row in result.rows if row.failure}
    assert told["dies"].startswith("its process ended with SIGABRT")
    assert told["hangs"] == "it took more than 1000000 s"
    data = json.loads((tmp_path / "b" / "bench.json").read_text())
    assert [each["name"] for each in data["rows"]] == list(NAMES) and data["settings"]["hardware"] == "H100"

    again = Noted()
    assert run(tmp_path / "b", again, FakeEvaluator(log=log)).rows == result.rows
    assert again.begun == [] and again.rows == []  # nothing is run twice
    retried = Noted()
    run(tmp_path / "b", retried, FakeEvaluator(log=log), problems=("dies", "good", "no_task"), retry=True)
    assert [row.name for row in retried.rows] == ["dies"]  # what another try may fix


def test_the_time_is_up_and_all_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "POLL_S", 0.05)
    log, watcher = tmp_path / "log", Noted()
    released = threading.Event()

    class Holding(FakeEvaluator):
        """Its fourth evaluation ends when it is released: the search is cut off on its way, however slow the machine is."""

        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            if log.exists() and len(log.read_text().splitlines()) == 3:
                released.wait()
            return super().evaluate(requests)

    evaluator = Holding(log=log)
    half = Clock(lambda: "hangs" in watcher.taken and watcher.evaluations >= 2)
    first = run(tmp_path / "b", watcher, evaluator, half, problems=("good", "hangs"), jobs=2, minutes=1)
    assert [each.name for each in first.left] == ["good", "hangs"] and not first.rows
    assert "Not yet: " in (tmp_path / "b" / "bench.md").read_text()
    released.set()
    second = run(tmp_path / "b", Noted(), evaluator, problems=("good",))
    assert [row.name for row in second.rows] == ["good"] and second.rows[0].evaluations == 6
    asked = log.read_text().splitlines()
    assert len(asked) - len(set(asked)) <= 1  # only what was under way when the time was up is evaluated again


def test_rows_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    run(tmp_path, problems=("no_task",))
    with pytest.raises(RunError, match="were made with dtype"):
        run(tmp_path, problems=("no_task",), dtype="fp16")
    with pytest.raises(RunError, match="hardware"):
        run(tmp_path, problems=("no_task",), evaluator=FakeEvaluator(hardware="A100"))


def test_a_wrong_setting_ends_it(tmp_path: Path) -> None:
    from mtmc.agents.coders.model import ModelCoder

    with pytest.raises(ConfigError, match="ask a language model, and none is named"):
        parts = {**PARTS, "coder": ModelCoder(), "evaluator": FakeEvaluator()}
        run_bench(BenchSettings(suite="faults", problems=("good",)), parts, tmp_path)


def test_which_problems_load(tmp_path: Path) -> None:
    settings = BenchSettings(suite="faults", problems=("good", "no_task", "dies"), jobs=1)
    rows = list_problems(settings, tmp_path)
    assert [(row.name, row.failure and row.failure.kind) for row in rows] == [
        ("good", None),
        ("dies", "crash"),
        ("no_task", "not_loaded"),
    ]
