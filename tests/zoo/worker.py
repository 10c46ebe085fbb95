"""Workers: processes that probe modules one after another; one that hangs or dies costs its module, not the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tests.zoo.row import Row

START_S = 120.0
"""Seconds that a worker may take for its imports and its evaluator besides its first module."""
_SETTINGS: dict[str, dict[str, Any]] = {"gpu": {"baselines": ("eager",), "reuse": 16}}
"""Of evaluators: what a module is compared with here is itself, and its versions are the rewriter's."""


@dataclass(frozen=True)
class Work:
    """What is the same for all modules of a run. evaluator: "lab" or "gpu". limit_s: wall seconds of one module."""

    evaluator: str
    evaluations: int
    limit_s: float


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    row: Row | None = None
    until: float = 0.0
    fresh: bool = True


def run_all(todo: Sequence[Row], work: Work, workers: int, done: Callable[[Row], None]) -> None:
    """Probe the modules of `todo` (rows with a name, library and dtype), calling `done` with each as it ends."""
    waiting = list(reversed(todo))
    crew: list[_Worker] = []
    try:
        while waiting or any(worker.row is not None for worker in crew):
            while waiting and len(crew) < workers:
                crew.append(_start(work))
            for worker in crew:
                if worker.row is None and waiting:
                    worker.row = waiting.pop()
                    worker.until = time.monotonic() + work.limit_s + (START_S if worker.fresh else 0.0)
                    worker.pipe.send(worker.row)
            _collect(crew, work, done)
    finally:
        for worker in crew:
            _end(worker)


def _collect(crew: list[_Worker], work: Work, done: Callable[[Row], None]) -> None:
    """Take what has come back, and end the workers whose time is up or that are gone."""
    ready = wait([worker.pipe for worker in crew if worker.row is not None], timeout=1.0)
    for worker in [each for each in crew if each.row is not None]:
        assert worker.row is not None
        if worker.pipe in ready:
            try:
                done(worker.pipe.recv())
                worker.row, worker.fresh = None, False
                continue
            except (EOFError, ConnectionError):
                worker.process.join(5)
                done(replace(worker.row, failure=f"its process ended with status {worker.process.exitcode}"))
        elif time.monotonic() > worker.until:
            done(replace(worker.row, failure=f"not done after {work.limit_s:.0f} s", seconds=work.limit_s))
        else:
            continue
        _end(worker)
        crew.remove(worker)


def _start(work: Work) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=False)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _end(worker: _Worker) -> None:
    """End a worker with all that it started: it leads a process group."""
    worker.pipe.close()
    worker.process.join(10 if worker.row is None else 0)
    if worker.process.is_alive() and worker.process.pid is not None:
        try:
            os.killpg(worker.process.pid, signal.SIGKILL)
        except ProcessLookupError:  # It has not come to leading one yet.
            worker.process.kill()
    worker.process.join()


def _serve(pipe: Connection, work: Work) -> None:
    """A worker's life: rows in, the same rows with what was found out."""
    os.setpgid(0, 0)
    if work.evaluator != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"  # of the drop-in's kernels; the evaluator's processes have their own
    import torch

    from mtmc.evaluate import EVALUATORS
    from mtmc.evaluate.interpreter.interpreter import prepare
    from tests.zoo.probe import probe
    from tests.zoo.registry import entries

    torch.set_num_threads(1)
    if work.evaluator != "gpu":
        prepare()
    evaluator: Any = None
    try:
        while True:
            row: Row = pipe.recv()
            try:
                evaluator = evaluator or EVALUATORS[work.evaluator](**_SETTINGS.get(work.evaluator, {})).open()
                entry = entries(row.library)[row.name]
                found = probe(entry, row.dtype, evaluator, work.evaluator, work.evaluations)
            except Exception as error:  # Whatever it is, the other modules are still to be looked at.
                text = " ".join(f"{type(error).__name__}: {error}".split())
                found = replace(row, failure=text[:600])
            pipe.send(found)
    except EOFError:
        pass
    finally:
        if evaluator is not None:
            evaluator.close()
