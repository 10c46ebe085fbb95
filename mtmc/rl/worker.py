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
from mtmc.rl.generator import Generated
from mtmc.rl.settings import CollectSettings
from mtmc.search import Budget, Progress
from mtmc.task import Task, task_from_source

_log = logging.getLogger(__name__)

Ended = Literal["finished", "cut off", "refused", "failed"]

RUNS, PARTS, REFUSED = "runs", "parts", "refused"
"""Folders of a collection: the runs, the rows of each tree, and why a task was refused."""


@dataclass(frozen=True)
class Orders:
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
class Told:
    """How one tree ended. seconds: wall time. reason: why a task was refused or its tree failed."""

    name: str
    ended: Ended
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


def grow(orders: Orders, generated: Generated, number: int) -> Told:
    """Grow and record the tree of one task, or what is left of it. number: of the task, which chooses its evaluator.

    A bug that one task brings out, of the evaluator's too, ends no other's tree: it is told as the reason.
    """
    started = time.monotonic()
    try:
        return _grow(orders, generated, number, started)
    except Exception as error:
        if not isinstance(error, EvaluatorError):  # who has the evaluator has told it
            _log.exception("the tree of %s failed", generated.name)
        return Told(
            generated.name, "failed", seconds=time.monotonic() - started, reason=f"{type(error).__name__}: {error}"
        )


def _grow(orders: Orders, generated: Generated, number: int, started: float) -> Told:
    try:
        task = _admitted(orders, generated)
    except TaskError as error:
        write_whole(orders.out / REFUSED / f"{generated.name}.txt", f"{error}\n")
        return Told(generated.name, "refused", seconds=time.monotonic() - started, reason=str(error))
    address, key = orders.servers[number % len(orders.servers)]
    evaluator = Screening(RemoteEvaluator(address, key), orders.recorded_as)
    return grow_task(orders, task, evaluator, started)


def grow_task(orders: Orders, task: Task, evaluator: Screening, started: float) -> Told:
    """As `grow`, for a task that is admitted, with an evaluator at hand. started: `time.monotonic()` when it was begun."""
    folder = orders.out / RUNS / task.name
    ended: Ended = "finished"
    before = _evaluations(folder)
    try:
        _search(orders, task, evaluator, folder)
    except OutOfTime:
        ended = "cut off"
    except TaskError as error:
        write_whole(orders.out / REFUSED / f"{task.name}.txt", f"{error}\n")
        return Told(task.name, "refused", seconds=time.monotonic() - started, reason=str(error))
    if _evaluations(folder):
        _keep(orders.out, task.name, folder)
    return Told(task.name, ended, _evaluations(folder) - before, time.monotonic() - started)


def done(out: Path, name: str) -> bool:
    """Whether a tree is finished and recorded, or its task was refused."""
    return (out / PARTS / name / "finished").exists() or (out / REFUSED / f"{name}.txt").exists()


def part_folders(out: Path) -> list[Path]:
    """The folders of recorded trees, in the order of their names."""
    return sorted(path.parent for path in (out / PARTS).glob("*/transitions.parquet"))


def _admitted(orders: Orders, generated: Generated) -> Task:
    """The loaded task. Raises: TaskError for one that is a benchmark's, cannot be searched, or is too easy to fool."""
    from mtmc.agents.policies.learned.graphs import graph_facts, graph_key
    from mtmc.evaluate.reference.admission import admit
    from mtmc.rewrite.capture import capture

    task = task_from_source(generated.text, generated.name)
    key = graph_key(graph_facts(capture(task)))
    if key in orders.excluded:
        raise TaskError(f"task {task.name} is a problem of the benchmark: {orders.excluded[key]}")
    with tempfile.TemporaryDirectory(prefix="mtmc-admit-") as folder:
        weak = admit(task, "cpu", Path(folder)).warnings
    if weak:
        raise TaskError(f"task {task.name}: {weak[0]}")
    return task


def _search(orders: Orders, task: Task, evaluator: Screening, folder: Path) -> None:
    """Begin the run, or go on with it. Raises: OutOfTime, TaskError."""
    from mtmc.search import resume, search
    from mtmc.store import STORE_NAME

    settings = orders.settings
    budget = Budget(evaluations=settings.evaluations, depth=settings.depth)
    strategy = Expand(settings.blind, settings.complete, settings.focus)

    def watch(progress: Progress) -> None:
        if orders.deadline is not None and time.time() >= orders.deadline and progress.finished is None:
            raise OutOfTime

    if orders.deadline is not None and time.time() >= orders.deadline:
        raise OutOfTime
    if (folder / STORE_NAME).exists():
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
    from mtmc.store import STORE_NAME, Store

    if not (folder / STORE_NAME).exists():
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
