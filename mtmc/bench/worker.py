"""worker: a process that takes problems one after the other, started by a `WorkerPool`.

It is given its end of a pipe as a file descriptor. It is told once what all problems have in common and where the evaluator
is, says ("ready", ""), is told one problem at a time, and answers with ("progress", ...) and in the end ("row", row), or
("config", message) for a setting that is wrong for all. It ends when the other end is closed, or that process has ended.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from mtmc.bench.problem import Problem
from mtmc.bench.row import Failure, Row
from mtmc.bench.solve import Setup, loads, salvage, solve
from mtmc.errors import ConfigError
from mtmc.evaluate.sandbox.capabilities import end_with_parent
from mtmc.evaluate.shared import RemoteEvaluator, Shared
from mtmc.search import Progress

What = Literal["solve", "score", "load", "salvage"]


@dataclass(frozen=True)
class Job:
    """One thing to do. failure: for "salvage", why the process that had the problem was ended. evaluations: that its search
    may take, None: as all."""

    problem: Problem
    what: What
    failure: Failure | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is told once. address, key: of the evaluator; None where it needs none. level: of its log."""

    setup: Setup
    address: str | None
    key: bytes
    level: str = "WARNING"


def done(job: Job, setup: Setup, evaluator: RemoteEvaluator | None, on_progress: Callable[[Progress], None]) -> Row:
    """The row of a job. Raises: ConfigError for a setting that is wrong for every problem."""
    if job.what == "load":
        return loads(job.problem, setup)
    if job.what == "salvage":
        assert job.failure is not None
        return salvage(job.problem, setup, job.failure)
    assert evaluator is not None
    shared = Shared(evaluator, setup.evaluator)
    if job.what == "score":
        from mtmc.bench.score import score

        return score(job.problem, setup, shared)
    return solve(job.problem, setup.with_evaluations(job.evaluations), shared, on_progress)


def serve(pipe: Connection) -> None:
    """Take jobs until the pipe is closed. Raises: EOFError or OSError when it is."""
    config: WorkerConfig = pipe.recv()
    logging.getLogger("mtmc").setLevel(config.level)
    evaluator = None if config.address is None else RemoteEvaluator(config.address, config.key)
    pipe.send(("ready", ""))
    while True:
        job: Job = pipe.recv()
        print(f"--- {job.what} {job.problem.id}", file=sys.stderr, flush=True)
        try:
            row = done(job, config.setup, evaluator, lambda progress: pipe.send(("progress", progress)))
            pipe.send(("row", row))
        except ConfigError as error:
            pipe.send(("config", str(error)))


def main() -> None:
    """Serve at the pipe whose file descriptor is the only argument."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    end_with_parent()  # a killed benchmark leaves no search behind that nobody waits for
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        os._exit(0)  # the benchmark has ended; torch takes a second to unload
