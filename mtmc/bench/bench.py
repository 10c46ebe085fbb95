"""run_bench: a benchmark from its settings to its tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from mtmc.bench.candidates import match_candidates
from mtmc.bench.folder import BenchFolder
from mtmc.bench.headroom import left, shares
from mtmc.bench.problem import Problem
from mtmc.bench.report import write_report
from mtmc.bench.row import PASSING, Row
from mtmc.bench.selection import as_asked, select
from mtmc.bench.settings import BenchSettings
from mtmc.bench.solve import SearchOptions, Setup, identity
from mtmc.bench.suites import open_suite
from mtmc.bench.worker import Job, WorkerConfig
from mtmc.bench.worker_pool import Limits, Watcher, WorkerPool
from mtmc.errors import TaskError
from mtmc.evaluate import GpuSettings, RayEvaluator
from mtmc.evaluate.devices import cores, visible_devices
from mtmc.evaluate.shared import EvaluatorServer
from mtmc.protocols import Evaluator, EvaluatorSettings
from mtmc.search import Progress
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.components import Kind, describe
from mtmc.search.opening import versions
from mtmc.store import Store, has_run
from mtmc.task.dtypes import in_dtype

_log = logging.getLogger(__name__)

GRACE_S = 60.0
"""Seconds beyond its time until a problem's process is ended: a batch of its search that is in flight may still end."""
HOW = (
    *("devices", "workers", "builders", "timeout_s", "memory_mib", "baselines_file", "compile_s", "sandbox"),
    *("address", "slots", "cpus", "wait_s", "tries"),
)
"""Settings of evaluators that say how an evaluation is done, not what is found: they may differ between the rows."""
WRITTEN_EVERY_S = 30.0


@dataclass(frozen=True)
class BenchResult:
    """rows: of the chosen problems that have one, in the suite's order. left: the others. folder: where all of it is."""

    rows: tuple[Row, ...]
    left: tuple[Problem, ...]
    folder: Path


class Quiet:
    """A watcher who does not care."""

    def begin(self, problems: int) -> None:
        """See `Watcher`."""

    def started(self, problem: Problem) -> None:
        """See `Watcher`."""

    def moved(self, problem: Problem, progress: Progress) -> None:
        """See `Watcher`."""

    def ended(self, row: Row) -> None:
        """See `Watcher`."""


def run_bench(
    settings: BenchSettings,
    parts: Mapping[Kind, Any],
    out: Path | str,
    *,
    options: SearchOptions | None = None,
    watcher: Watcher | None = None,
    log_level: str = "WARNING",
    clock: Callable[[], float] = time.monotonic,
) -> BenchResult:
    """Run the chosen problems that have no row yet, and write the tables.

    parts: "strategy", "policy", "coder" and "evaluator" as objects that can be pickled; the evaluator as its settings.
    out: the benchmark's folder; one that was used with the same settings is gone on with. options: of each search.
    clock: in seconds, that the limits of wall time go by.

    A problem that cannot be loaded, exported or searched is a row with its reason.
    Raises: ConfigError or RunError for settings that are wrong, EvaluatorError where the evaluator does not open.
    """
    started = clock()
    suite = open_suite(settings.suite, settings.path, settings.licence == "ack")
    problems = select(suite.problems(), settings)
    folder = BenchFolder(Path(out).expanduser())
    described = {kind: describe(kind, part, part) for kind, part in parts.items()}
    setup = Setup(
        suite=suite,
        folder=folder.path.absolute(),
        dtype=settings.dtype,
        parts={kind: part for kind, part in parts.items() if kind != "evaluator"},
        evaluator=described["evaluator"],
        options=_within(options or SearchOptions(), 60 * settings.problem_minutes),
        score=_candidates(settings, problems),
    )
    with _opened(parts["evaluator"]) as evaluator:
        same = _same(settings, described, options or SearchOptions(), evaluator)
        with folder.opened(same):
            rows = {problem: row for problem in problems if (row := _kept(folder, problem, setup, settings.retry))}
            about = {**same, "versions": versions(), "date": date.today().isoformat()}
            report = _Report(folder, problems, rows, about)
            begun = [each for each in as_asked(problems, settings) if each not in rows]
            jobs = [Job(each, "solve" if setup.score is None else "score") for each in begun]
            size = settings.jobs or _jobs(parts["evaluator"], evaluator)
            limits = _limits(settings, GRACE_S, started, clock)
            work = Work(setup, folder, limits, size, log_level)
            _work(jobs, work, evaluator, report, watcher or Quiet())
            if settings.headroom:
                _spend_what_is_left(work, evaluator, report, watcher or Quiet())
    return report.result()


@dataclass(frozen=True)
class Work:
    """How jobs are worked on. size: processes at most."""

    setup: Setup
    folder: BenchFolder
    limits: Limits
    size: int
    log_level: str


def _work(jobs: Sequence[Job], work: Work, evaluator: Evaluator, report: _Report, watcher: Watcher) -> None:
    """Work on jobs until there are none or the time is up, and keep what comes of each."""
    report.write()
    if not jobs:
        return
    watcher.begin(len(jobs))
    server = EvaluatorServer(evaluator)
    config = WorkerConfig(work.setup, server.address, server.key, work.log_level)
    try:
        with WorkerPool(config, min(work.size, len(jobs)), work.folder) as pool:
            evaluator.beside(pool.working)
            for row in pool.run(jobs, work.limits, watcher):
                work.folder.keep(row)
                report.add(row)
    finally:
        server.close()
        report.write()


def _spend_what_is_left(work: Work, evaluator: Evaluator, report: _Report, watcher: Watcher) -> None:
    """Go on with the problems that have headroom, until nothing is left or the time is up. A problem that has no row yet has
    nothing to give: its evaluations are its own."""
    budget = work.setup.options.budget
    while True:
        result = report.result()
        problems = {each.id: each for each in report.problems}
        spent = {row.id: _spent(work.folder, problems[row.id], row) for row in result.rows}
        given = shares(result.rows, budget, left(result.rows, spent, budget))
        if not given or work.limits.over:
            return
        _log.info("%d evaluations are left, for %d problems with headroom", sum(given.values()), len(given))
        jobs = [Job(problems[name], "solve", evaluations=spent[name] + more) for name, more in given.items()]
        _work(jobs, work, evaluator, report, watcher)
        if report.result().rows == result.rows:
            return


def _spent(folder: BenchFolder, problem: Problem, row: Row) -> int:
    """Evaluations of a problem, also those of a search that was gone on with and cut off before it had a new row."""
    run = folder.run(problem)
    if row.failure is not None or not has_run(run):
        return row.evaluations
    store = Store.read(run)
    try:
        return max(row.evaluations, store.evaluations())
    finally:
        store.close()


def list_problems(
    settings: BenchSettings, out: Path | str, *, watcher: Watcher | None = None, log_level: str = "ERROR"
) -> list[Row]:
    """Which of the chosen problems load, in the suite's order: rows without a result, with the reason where one does not.

    out: a folder for logs, and for the shapes that were found: a benchmark in the same folder need not find them again.
    Raises: ConfigError for settings that are wrong.
    """
    suite = open_suite(settings.suite, settings.path, settings.licence == "ack")
    problems = select(suite.problems(), settings)
    folder = BenchFolder(Path(out).expanduser())
    setup = Setup(suite, folder.path.absolute(), settings.dtype, {}, {})
    limits = _limits(settings, 0.0, time.monotonic(), time.monotonic)
    watcher = watcher or Quiet()
    config = WorkerConfig(setup, None, b"", log_level)
    with WorkerPool(config, min(len(problems), settings.jobs or 1), folder) as pool:
        watcher.begin(len(problems))
        rows = {row.id: row for row in pool.run([Job(each, "load") for each in problems], limits, watcher)}
    return [rows[each.id] for each in problems if each.id in rows]


class _Report:
    """The rows that there are, and their tables, which are written anew every now and then. problems: all chosen ones."""

    def __init__(
        self, folder: BenchFolder, problems: Sequence[Problem], rows: dict[Problem, Row], settings: Mapping[str, Any]
    ) -> None:
        self._folder, self._settings = folder, settings
        self.problems = problems
        self._rows = {problem.id: row for problem, row in rows.items()}
        self._written = 0.0

    def add(self, row: Row) -> None:
        """One more row."""
        self._rows[row.id] = row
        if time.monotonic() > self._written + WRITTEN_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the tables."""
        self._written = time.monotonic()
        result = self.result()
        write_report(result.rows, [each.id for each in result.left], self._settings, self._folder.path)

    def result(self) -> BenchResult:
        """What there is by now."""
        rows = tuple(self._rows[each.id] for each in self.problems if each.id in self._rows)
        left = tuple(each for each in self.problems if each.id not in self._rows)
        return BenchResult(rows, left, self._folder.path)


@contextmanager
def _opened(evaluator: Evaluator | EvaluatorSettings) -> Iterator[Evaluator]:
    """The evaluator of settings, closed at the end; an evaluator that is open already as it is."""
    if not isinstance(evaluator, EvaluatorSettings):
        yield evaluator
        return
    opened = evaluator.open()
    try:
        yield opened
    finally:
        opened.close()


def _within(options: SearchOptions, limit_s: float) -> SearchOptions:
    """The same options with a search that ends by itself after so many seconds."""
    wall = options.budget.wall_seconds
    return replace(options, budget=replace(options.budget, wall_seconds=min(limit_s, wall or limit_s)))


def _limits(settings: BenchSettings, grace_s: float, started: float, clock: Callable[[], float]) -> Limits:
    """The limits of wall time. grace_s: what a problem gets beyond its own. started: by this clock."""
    deadline = None if settings.minutes is None else started + 60 * settings.minutes
    return Limits(60 * settings.problem_minutes + grace_s, deadline, clock)


def _candidates(settings: BenchSettings, problems: Sequence[Problem]) -> dict[str, tuple[Path, ...]] | None:
    """The candidates of each problem, None where nothing is scored. Raises: ConfigError where there are none."""
    if not settings.score:
        return None
    matched = match_candidates(Path(settings.score).expanduser(), problems)
    for path in matched.unmatched:
        _log.warning("%s is for none of the chosen problems", path)
    return {each: tuple(path.resolve() for path in paths) for each, paths in matched.by_problem.items()}


def _same(
    settings: BenchSettings, described: Mapping[Kind, Any], options: SearchOptions, evaluator: Evaluator
) -> dict[str, Any]:
    """What all rows of a folder have in common."""
    judged_by = described["evaluator"]
    found = {name: value for name, value in judged_by.get("settings", {}).items() if name not in HOW}
    same: dict[str, Any] = {
        "suite": settings.suite,
        "dtype": settings.dtype,
        "scored": bool(settings.score),
        "evaluator": {**judged_by, "settings": found},
        "hardware": evaluator.hardware,
        "seed": options.seed,
    }
    if not settings.score:
        same |= {kind: part for kind, part in described.items() if kind != "evaluator"}
        same |= {"budget": asdict(options.budget), "batch": options.batch, "repairs": options.repairs}
        same["model"] = options.model.name
        if options.agents != AgentSettings():
            same["agents"] = asdict(options.agents)
        if options.asynchronous:
            same["asynchronous"] = True
        if settings.headroom:
            same["headroom"] = True
    return same


def _kept(folder: BenchFolder, problem: Problem, setup: Setup, retry: bool) -> Row | None:
    """A problem's row, if it is there, is of the same text, and is not to be tried again."""
    row = folder.find(problem)
    passing = row is not None and row.failure is not None and row.failure.kind in PASSING
    if row is None or (retry and (row.cut_short or row.cut_off or passing)):
        return None
    if row.digest:
        try:
            text = in_dtype(setup.suite.source(problem), setup.dtype)
            if identity(problem, text, setup) != row.digest:
                _log.warning("%s has changed since it was run: it is run again", problem.id)
                return None
        except TaskError:
            return None
    return row


def _jobs(settings: Any, evaluator: Evaluator) -> int:
    """How many problems are worked on at the same time, where nobody says. evaluator: the one that is open."""
    if isinstance(evaluator, RayEvaluator):
        return min(evaluator.slots + 1, cores())
    return len(visible_devices(settings.devices)) + 1 if isinstance(settings, GpuSettings) else 1
