"""solve: one problem from its file to its row, whatever happens on the way."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtmc.bench.facts import row_of
from mtmc.bench.failures import failure_of
from mtmc.bench.folder import BenchFolder
from mtmc.bench.loading import load_problem
from mtmc.bench.problem import Problem, Suite
from mtmc.bench.row import CUT_OFF, Failure, Row, digest
from mtmc.bench.suites.files import read_text
from mtmc.chat import ModelSettings
from mtmc.errors import RunError
from mtmc.evaluate.shared import Shared
from mtmc.search import AgentSettings, Budget, Progress, SearchResult, load, resume, search
from mtmc.store import Store, has_run
from mtmc.task import Task

_log = logging.getLogger(__name__)

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class SearchOptions:
    """What `mtmc.search.search` takes besides the task and its parts."""

    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    batch: int = 1
    repairs: int = 2
    model: ModelSettings = field(default_factory=ModelSettings)
    dumps: bool = False
    asynchronous: bool = False
    agents: AgentSettings = field(default_factory=AgentSettings)


@dataclass(frozen=True)
class Setup:
    """What all problems of a benchmark have in common. Plain data, so that it can be handed to another process.

    folder: of the benchmark. parts: "strategy", "policy" and "coder", as objects. evaluator: what a run records of it.
    options: of each search. score: candidates by id of the problem, where they are scored and nothing is searched.
    """

    suite: Suite
    folder: Path
    dtype: str
    parts: Mapping[str, Any]
    evaluator: Mapping[str, Any]
    options: SearchOptions = field(default_factory=SearchOptions)
    score: Mapping[str, tuple[Path, ...]] | None = None

    def with_evaluations(self, count: int | None) -> Setup:
        """The same with another number of evaluations for a search; None changes nothing."""
        if count is None:
            return self
        return replace(self, options=replace(self.options, budget=replace(self.options.budget, evaluations=count)))

    @property
    def kept(self) -> BenchFolder:
        """The benchmark's folder."""
        return BenchFolder(self.folder)


def solve(problem: Problem, setup: Setup, evaluator: Shared, on_progress: OnProgress | None = None) -> Row:
    """Load a problem, search it (or go on with a search that was cut off), and say what came of it. A search that ended by
    an error counts with the versions that it had by then, as one does whose process had to be ended.

    Raises: ConfigError for a setting that is wrong for every problem.
    """
    started, found = time.monotonic(), ""
    try:
        task = load_problem(setup.suite, problem, setup.dtype, setup.kept.task(problem))
        found = identity(problem, task.source, setup)
        result = _searched(problem, task, setup, evaluator, on_progress)
        return row_of(problem, task, result, evaluator.verifies, result_seconds(result, started), exported=True)
    except Exception as error:
        _log.warning("%s: the search ended by an error", problem.id, exc_info=True)
        failure = failure_of(error, bool(found), evaluator.asked)
        row = salvage(problem, setup, failure)
        return row if row.failure is None else failed_row(problem, failure, time.monotonic() - started, found)


def loads(problem: Problem, setup: Setup) -> Row:
    """Whether a problem loads, as a row without a result."""
    started = time.monotonic()
    try:
        task = load_problem(setup.suite, problem, setup.dtype, setup.kept.task(problem))
    except Exception as error:
        _log.warning("%s does not load", problem.id, exc_info=True)
        return failed_row(problem, failure_of(error, False, False), time.monotonic() - started)
    seconds = time.monotonic() - started
    return Row(problem.level, problem.number, problem.name, digest(task.source), seconds=seconds)


def salvage(problem: Problem, setup: Setup, failure: Failure) -> Row:
    """The row of a problem whose search did not come to its end: with the versions that its run has, if it has any.

    failure: why not. Nothing is exported again, since that may be what did not end.
    """
    run_dir = setup.kept.run(problem)
    try:
        if not has_run(run_dir):
            return failed_row(problem, failure, 0.0)
        result = load(run_dir, strategy=setup.parts["strategy"])
        task, verifies, seconds = _recorded(run_dir)
        row = row_of(problem, task, result, verifies, seconds, exported=False)
        return replace(row, finished=f"{CUT_OFF}{failure.message}")
    except Exception:
        _log.warning("%s: nothing to be had of its run", problem.id, exc_info=True)
        return failed_row(problem, failure, 0.0)


def identity(problem: Problem, text: str, setup: Setup) -> str:
    """What a row holds for: the problem's text in the benchmark's dtype, and its candidates where these are scored."""
    paths = () if setup.score is None else setup.score.get(problem.id, ())
    return digest("\0".join([text, *(read_text(path) for path in paths)]))


def failed_row(problem: Problem, failure: Failure, seconds: float, digest: str = "") -> Row:
    """The row of a problem without a result. digest: see `identity`, empty where its text is not known."""
    return Row(problem.level, problem.number, problem.name, digest, failure, seconds=seconds)


def result_seconds(result: SearchResult, started: float) -> float:
    """Wall seconds of a problem, what its run took before it was resumed included."""
    store = Store.read(result.run_dir)
    try:
        return max(time.monotonic() - started, store.seconds())
    finally:
        store.close()


def _searched(
    problem: Problem, task: Task, setup: Setup, evaluator: Shared, on_progress: OnProgress | None
) -> SearchResult:
    """The problem's run, new or gone on with."""
    run_dir = setup.kept.run(problem)
    if _resumable(run_dir, task):
        evaluator.asked = True  # its root was evaluated by then
        try:
            return resume(
                run_dir,
                **setup.parts,
                evaluator=evaluator,
                budget=setup.options.budget,
                model=setup.options.model,
                progress=on_progress,
                dumps=setup.options.dumps,
            )
        except RunError as error:
            _log.warning("%s: its run cannot be gone on with, and starts again: %s", problem.id, error)
            evaluator.asked = False
    shutil.rmtree(run_dir, ignore_errors=True)
    options = vars(setup.options)
    return search(task, **setup.parts, evaluator=evaluator, **options, out=run_dir, progress=on_progress)


def _resumable(run_dir: Path, task: Task) -> bool:
    """Whether there is a run of this very task that has its root."""
    if not has_run(run_dir):
        return False
    try:
        store = Store.read(run_dir)
        try:
            return store.has_root() and store.task() == task
        finally:
            store.close()
    except RunError:
        return False


def _recorded(run_dir: Path) -> tuple[Task, bool, float]:
    """The task of a run, whether its evaluator verifies, and the seconds that it took."""
    store = Store.read(run_dir)
    try:
        verifies = any(gate == "verify" for _, gate in store.recorded())
        return store.task(), verifies, store.seconds()
    finally:
        store.close()
