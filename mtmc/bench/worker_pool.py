"""worker_pool: processes that work on the problems, each within its time, replaced where they die or do not end.

A problem runs what others wrote (a reference at small shapes, torch.export): it may hang, crash or eat the memory. So
each has its process, which is ended when the problem's time is up, and what its run has found until then is read by another.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Literal, Protocol

from mtmc.bench.folder import BenchFolder
from mtmc.bench.problem import Problem
from mtmc.bench.row import Failure, Row
from mtmc.bench.solve import failed_row
from mtmc.bench.worker import Job, WorkerConfig
from mtmc.errors import ConfigError
from mtmc.search import Progress

_log = logging.getLogger(__name__)

POLL_S = 1.0
"""How often the clock is looked at."""
END_S = 10.0
"""Seconds until a process that was told to go is killed."""
_LAST_LINES = 4096
_STARTER = "from mtmc.bench.worker import main; main()"


class Watcher(Protocol):
    """Who is told how a benchmark goes on."""

    def begin(self, problems: int) -> None:
        """It begins, with so many problems to do; or goes on with so many of them again."""
        ...

    def started(self, problem: Problem) -> None:
        """A problem is taken up."""
        ...

    def moved(self, problem: Problem, progress: Progress) -> None:
        """Its search goes on."""
        ...

    def ended(self, row: Row) -> None:
        """A problem has its row."""
        ...


@dataclass(frozen=True)
class Limits:
    """problem_s: wall seconds of one problem, after which its process is ended. deadline: what the clock says when
    everything is ended. None: no limit. clock: seconds from any start, "now" for both."""

    problem_s: float | None = None
    deadline: float | None = None
    clock: Callable[[], float] = time.monotonic

    @property
    def over(self) -> bool:
        """Whether the deadline is behind."""
        return self.deadline is not None and self.clock() >= self.deadline


class _Worker:
    """One process, seen from outside."""

    def __init__(self, config: WorkerConfig, log: Path) -> None:
        self.job: Job | None = None
        self.since = 0.0
        self.ready = False
        """Whether it has begun to listen, and so ends when this process does."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._output: IO[bytes] = log.open("ab")
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-c", _STARTER, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C is ours to answer, and all that it has started ends with it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )
        theirs.close()
        self._send(config)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def take(self, job: Job, now: float) -> None:
        """Start a job. now: what the clock says."""
        self.job, self.since = job, now
        self._send(job)

    def _send(self, what: WorkerConfig | Job) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone: who listens to it will hear
            self.pipe.send(what)

    def receive(self) -> tuple[str, Row | Progress | str]:
        """What it says next. Raises: EOFError or OSError where it is gone."""
        message: tuple[str, Row | Progress | str] = self.pipe.recv()
        return message

    def end(self, kill: bool) -> str:
        """End the process and say how it ended: "SIGSEGV" or "exit status 1", and the last line of its log."""
        self.pipe.close()
        if not kill:
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                kill = True
        if kill:
            _kill(self._process)
        self._output.close()
        status = self._process.returncode
        ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        last = self._log.read_bytes()[-_LAST_LINES:].decode(errors="replace").strip().splitlines()
        return f"{ended}: {last[-1].strip()}" if last and not kill else ended


class WorkerPool:
    """Works on problems with some processes. config: what these are told once. folder: where their logs go."""

    def __init__(self, config: WorkerConfig, size: int, folder: BenchFolder) -> None:
        self._config, self._size, self._folder = config, size, folder
        self._workers: list[_Worker] = []
        self._made = 0
        self._waiting: deque[Job] = deque()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, jobs: Sequence[Job], limits: Limits, watcher: Watcher) -> Iterable[Row]:
        """The rows of the jobs, as they come. Those that are not there at the deadline never come.

        Raises: ConfigError for a setting that is wrong for every problem.
        """
        self._waiting = deque(jobs)
        while self._waiting or any(each.job for each in self._workers):
            if limits.over:
                self.close()
                return
            self._assign(limits, watcher)
            busy = [each for each in self._workers if each.job is not None]
            ready = wait([each.pipe for each in busy], POLL_S)
            for worker in busy:
                row = self._receive(worker, limits, watcher) if worker.pipe in ready else self._time(worker, limits)
                if row is not None:
                    watcher.ended(row)
                    yield row

    def working(self) -> list[int]:
        """Numbers of the processes at work; from any thread."""
        return [each.pid for each in tuple(self._workers) if each.ready and each.job is not None]

    def close(self) -> None:
        """End all processes. Idempotent."""
        for worker in self._workers:
            worker.end(kill=worker.job is not None)
        self._workers = []

    def _assign(self, limits: Limits, watcher: Watcher) -> None:
        """A job for each process that has none; new processes where there are fewer than there may be."""
        while self._waiting:
            idle = next((each for each in self._workers if each.job is None), None)
            if idle is None:
                if len(self._workers) >= self._size:
                    return
                self._made += 1
                idle = _Worker(self._config, self._folder.log(self._made))
                self._workers.append(idle)
            job = self._waiting.popleft()
            if job.what != "salvage":
                watcher.started(job.problem)
            idle.take(job, limits.clock())

    def _receive(self, worker: _Worker, limits: Limits, watcher: Watcher) -> Row | None:
        assert worker.job is not None
        try:
            kind, value = worker.receive()
        except (EOFError, OSError):
            return self._lost(worker, "crash", limits.clock())
        if kind == "ready":
            worker.ready = True
            return None
        if kind == "config":
            raise ConfigError(str(value))
        if isinstance(value, Progress):
            watcher.moved(worker.job.problem, value)
            return None
        assert isinstance(value, Row)
        worker.job = None
        return value

    def _time(self, worker: _Worker, limits: Limits) -> Row | None:
        """End a process whose problem's time is up."""
        now = limits.clock()
        if limits.problem_s is None or now < worker.since + limits.problem_s:
            return None
        return self._lost(worker, "time", now)

    def _lost(self, worker: _Worker, kind: Literal["time", "crash"], now: float) -> Row | None:
        """A process is gone: its problem's row, or None where another process looks at its run first."""
        job = worker.job
        assert job is not None
        seconds = now - worker.since
        self._workers.remove(worker)
        how = worker.end(kill=kind == "time")
        reason = f"it took more than {seconds:.0f} s" if kind == "time" else f"its process ended with {how}"
        failure = Failure(kind, reason)
        _log.info("%s: %s", job.problem.id, reason)
        if job.what == "solve":
            self._waiting.appendleft(Job(job.problem, "salvage", failure))
            return None
        return failed_row(job.problem, job.failure or failure, seconds)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
