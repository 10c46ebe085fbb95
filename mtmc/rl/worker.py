"""worker: one tree at a time, in a process of its own: search, record, leave the rows on disk."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mtmc.errors import EvaluatorError, TaskError
from mtmc.evaluate.shared import RemoteEvaluator
from mtmc.files import write_whole
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.rl.expand import Expand
from mtmc.rl.given import Given
from mtmc.rl.settings import CollectSettings
from mtmc.search import Budget, Progress
from mtmc.task import Task, task_from_source

_log = logging.getLogger(__name__)

TreeStatus = Literal["finished", "cut off", "refused", "failed"]

RUNS, PARTS, REFUSED = "runs", "parts", "refused"
"""Folders of a collection: the runs, the rows of each tree, and why a task was refused."""


@dataclass(frozen=True)
class WorkerConfig:
    """What all trees have in common.

    servers: address and key of each evaluator. recorded_as: name and settings of these. excluded: canonical forms of
    graphs that no task may have -> what they are. deadline: `time.time()` at which nothing more is evaluated.
    """

    settings: CollectSettings
    out: Path
    servers: tuple[tuple[str, bytes], ...]
    recorded_as: Mapping[str, Any]
    excluded: Mapping[str, str]
    deadline: float | None = None


@dataclass(frozen=True)
class TreeResult:
    """How one tree ended. seconds: wall time. reason: why a task was refused or its tree failed."""

    name: str
    status: TreeStatus
    evaluations: int = 0
    seconds: float = 0.0
    reason: str = ""


class OutOfTime(Exception):
    """The deadline came while a tree was growing."""


class Screening(Evaluator):
    """An evaluator for trees that only learn: no verification, no baselines; both take longer than all the rest."""

    def __init__(self, evaluator: Evaluator, recorded_as: Mapping[str, Any]) -> None:
        """recorded_as: name and settings of the evaluator, for the run's record."""
        self.hardware = evaluator.hardware
        self.recorded_as = dict(recorded_as)
        self._evaluator = evaluator

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        return self._evaluator.evaluate(requests)

    def close(self) -> None:
        """Nothing: it belongs to somebody else."""


def grow(config: WorkerConfig, given: Given, number: int) -> TreeResult:
    """Grow and record the tree of one task, or what is left of it. number: of the task, which chooses its evaluator.

    A bug that one task brings out, of the evaluator's too, ends no other's tree: it is the reason in the result.
    """
    started = time.monotonic()
    try:
        return _grow(config, given, number, started)
    except Exception as error:
        if not isinstance(error, EvaluatorError):  # who has the evaluator has logged it
            _log.exception("the tree of %s failed", given.name)
        return TreeResult(
            given.name, "failed", seconds=time.monotonic() - started, reason=f"{type(error).__name__}: {error}"
        )


def _grow(config: WorkerConfig, given: Given, number: int, started: float) -> TreeResult:
    try:
        task = _admitted(config, given)
    except TaskError as error:
        write_whole(config.out / REFUSED / f"{given.name}.txt", f"{error}\n")
        return TreeResult(given.name, "refused", seconds=time.monotonic() - started, reason=str(error))
    address, key = config.servers[number % len(config.servers)]
    evaluator = Screening(RemoteEvaluator(address, key), config.recorded_as)
    return grow_task(config, task, evaluator, started)


def grow_task(config: WorkerConfig, task: Task, evaluator: Screening, started: float) -> TreeResult:
    """As `grow`, for a task that is admitted, with an evaluator at hand. started: `time.monotonic()` when it was begun."""
    folder = config.out / RUNS / task.name
    status: TreeStatus = "finished"
    before = _evaluations(folder)
    try:
        _search(config, task, evaluator, folder)
    except OutOfTime:
        status = "cut off"
    except TaskError as error:
        write_whole(config.out / REFUSED / f"{task.name}.txt", f"{error}\n")
        return TreeResult(task.name, "refused", seconds=time.monotonic() - started, reason=str(error))
    if _evaluations(folder):
        _keep(config.out, task.name, folder)
    return TreeResult(task.name, status, _evaluations(folder) - before, time.monotonic() - started)


def done(out: Path, name: str) -> bool:
    """Whether a tree is finished and recorded, or its task was refused."""
    return (out / PARTS / name / "finished").exists() or (out / REFUSED / f"{name}.txt").exists()


def part_folders(out: Path) -> list[Path]:
    """The folders of recorded trees, in the order of their names."""
    return sorted(path.parent for path in (out / PARTS).glob("*/transitions.parquet"))


def _admitted(config: WorkerConfig, given: Given) -> Task:
    """The loaded task. Raises: TaskError for one that is a benchmark's, cannot be searched, or is too easy to fool."""
    from mtmc.agents.policies.learned.graphs import graph_facts, graph_key
    from mtmc.evaluate.reference.admission import admit
    from mtmc.rewrite.exported import export_graph

    task = task_from_source(given.text, given.name, given.trusted)
    key = graph_key(graph_facts(export_graph(task)))
    if key in config.excluded:
        raise TaskError(f"task {task.name} is a problem of the benchmark: {config.excluded[key]}")
    with tempfile.TemporaryDirectory(prefix="mtmc-admit-") as folder:
        weak = admit(task, "cpu", Path(folder)).warnings
    if weak:
        raise TaskError(f"task {task.name}: {weak[0]}")
    return task


def _search(config: WorkerConfig, task: Task, evaluator: Screening, folder: Path) -> None:
    """Begin the run, or go on with it. Raises: OutOfTime, TaskError."""
    from mtmc.search import resume, search
    from mtmc.store import has_run

    settings = config.settings
    budget = Budget(evaluations=settings.evaluations, depth=settings.depth)
    strategy = Expand(settings.blind, settings.complete, settings.focus)

    def watch(progress: Progress) -> None:
        if config.deadline is not None and time.time() >= config.deadline and progress.finished is None:
            raise OutOfTime

    if config.deadline is not None and time.time() >= config.deadline:
        raise OutOfTime
    if has_run(folder):
        resume(folder, strategy=strategy, evaluator=evaluator, budget=budget, progress=watch, dumps=False)
    else:
        search(
            task,
            strategy=strategy,
            policy="heuristic",
            coder="rewriter",
            evaluator=evaluator,
            budget=budget,
            seed=settings.seed,
            batch=settings.batch,
            repairs=0,
            out=folder,
            progress=watch,
            dumps=False,
        )


def _evaluations(folder: Path) -> int:
    """Evaluations that a run's folder has; 0 where there is no run, or it has no root yet."""
    from mtmc.store import Store, has_run

    if not has_run(folder):
        return 0
    store = Store.read(folder)
    try:
        return store.evaluations() if store.has_root() else 0
    finally:
        store.close()


def _keep(out: Path, name: str, folder: Path) -> None:
    """Leave a run's rows on disk; a mark besides says that there will be no more of them."""
    from mtmc.rl.dataset import write_dataset
    from mtmc.rl.record import record_run

    record = record_run(folder)
    sizes = write_dataset(record, out / PARTS / name)
    if record.tasks[0]["finished"]:
        write_whole(out / PARTS / name / "finished", json.dumps(sizes))
