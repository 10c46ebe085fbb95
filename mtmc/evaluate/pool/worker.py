"""A pool of worker processes: each job runs in a fresh, cheap, limited process forked from a warm one.

A job is a function of a module, its arguments (pickled on the way in) and its result (JSON on the way out, read back as
what the function says that it returns). The function's module is imported on both sides, so it loads little. The warm
process (`mtmc.evaluate.pool.server`) has imported torch and triton once; the fork costs milliseconds. A job that hangs,
crashes, runs out of memory or prints without end is killed with its whole process group, and says so in
`JobResult.status`; the next job gets another process. The pool may be used from any thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import EvaluatorError
from mtmc.evaluate.plain import MalformedError, returned
from mtmc.evaluate.pool.first_come import FirstCome
from mtmc.evaluate.pool.job import Job, JobResult, remove_tree
from mtmc.evaluate.pool.server import GO_ON, GOODBYE, JOB, STAND_STILL, Order
from mtmc.evaluate.pool.watch import TASK_LIMIT
from mtmc.evaluate.sandbox.launch import Sandboxed, start
from mtmc.evaluate.sandbox.lockdown import Mode
from mtmc.evaluate.sandbox.protection import require
from mtmc.evaluate.sandbox.seccomp import Profile

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

START_LIMIT_S = 180.0
"""Seconds a warm process may take to import torch and triton (a cold disk on a busy machine is slow)."""

_OWN_TASKS, _OWN_MIB = 64, 2048  # of the warm process itself and of bubblewrap

_STARTER = """
from mtmc.evaluate.pool.server import main
main({fd}, {warm!r}, {arguments!r}, {memory_mib}, {readable!r}, {gpu}, {cores!r})
"""


@dataclass(frozen=True)
class PoolSettings:
    """One kind of worker.

    warm: function of a module, called once in the warm process with `arguments`, which are plain JSON.
    environment: variables of the workers besides the few that are always there.
    workers: jobs at the same time. timeout_s: wall seconds a job may take. memory_mib: MiB a job may map on top of
        what the warm process has mapped; all its processes together may use as much.
    profile: how a job is locked down before its function is called, see `mtmc.evaluate.sandbox.lockdown.lock_down`; None:
        not at all, for a trusted function that does it by itself (after it has opened a socket, say).
    sandbox: "auto", "strict" or "off". gpu: with the GPU's devices.
    readable, writable: files and folders that jobs may read besides what every worker needs, and write besides their own.
    cores: hardware threads that they keep to; none: all that there are.
    """

    warm: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    timeout_s: float = 60.0
    memory_mib: int = 4096
    profile: Profile | None = "build"
    sandbox: Mode = "auto"
    gpu: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """How long jobs have stood still. before: seconds, of all times that are over. since: when they were stopped; None while
    they run."""

    before: float = 0.0
    since: float | None = None

    def seconds(self, now: float) -> float:
        """All together, by then."""
        return self.before + (0.0 if self.since is None else now - self.since)

    def told(self, on: bool, now: float) -> Stopped:
        """After they were told to stand still, or to go on."""
        if on:
            return self if self.since is not None else Stopped(self.before, now)
        return Stopped(self.seconds(now))


class Pool:
    """Runs jobs in limited processes. Starts its warm process on first use; `close` ends everything.

    Raises (constructor): EvaluatorError if the sandbox is "strict" and a protection is missing here.
    """

    def __init__(self, settings: PoolSettings) -> None:
        if settings.sandbox == "strict":
            require(settings.gpu)
        self._settings = settings
        self._folder = tempfile.mkdtemp(prefix="mtmc-")
        self._slots = FirstCome(settings.workers)
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._closed = False
        self._stopped = Stopped()
        self._finalizer = weakref.finalize(self, remove_tree, self._folder)

    @property
    def folder(self) -> Path:
        """Folder of the pool's temporary files (Triton's cache is in it); gone after `close`."""
        return Path(self._folder)

    def start(self) -> None:
        """Start the warm process without waiting for it. Raises: EvaluatorError if the pool is closed."""
        self._running_server()

    def run(
        self,
        function: Callable[..., Answer],
        arguments: Mapping[str, Any],
        timeout_s: float | None = None,
        profile: Profile | None = None,
        folder: Path | None = None,
    ) -> JobResult[Answer]:
        """Run one job and wait for its end; waits while all workers are busy, behind those who came before.

        function: of a module, with types that can be resolved. What is not of the type it returns is no answer: "crash".
        profile: "candidate" for a job that starts no process and compiles nothing; None: the pool's own.
        folder: one in the pool's (`folder_for`), which it has as its own and leaves behind; None: one that goes with it.

        Raises: TaskError as the job raised it; EvaluatorError if the workers cannot be started or the job's own code
        (not a candidate) failed.
        """
        with self._slots:
            self._running_server()
            with contextlib.nullcontext(folder) if folder is not None else self.folder_for() as own:
                order = self._order(function, arguments, str(own), profile)
                return _read(function, self._run_once(order, timeout_s or self._settings.timeout_s))

    @contextlib.contextmanager
    def folder_for(self) -> Iterator[Path]:
        """A folder for a job, and for those who read what it leaves there, while this is open."""
        folder = tempfile.mkdtemp(prefix="job-", dir=self._folder)
        try:
            yield Path(folder)
        finally:
            remove_tree(folder)

    def _order(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        folder: str,
        profile: Profile | None,
    ) -> Order:
        """A job and what it may use. A candidate has nothing to compile, so it cannot spoil what others have compiled."""
        settings = self._settings
        profile = profile or settings.profile
        cache = settings.environment.get("TRITON_CACHE_DIR", os.path.join(self._folder, "triton"))
        writable = (folder,) if profile == "candidate" else (folder, cache, *map(str, settings.writable))
        name, readable = name_of(function), tuple(map(str, settings.readable))
        return Order(name, dict(arguments), folder, profile, settings.memory_mib, settings.gpu, writable, readable)

    def stand_still(self, on: bool) -> None:
        """Stop all jobs where they are, or let them go on. Those that begin meanwhile stop at once. It takes nothing of the
        time that they have."""
        with self._lock:
            server = self._server
            self._stopped = self._stopped.told(on, time.monotonic())
        if server is not None:
            server.stand_still(on)

    def close(self) -> None:
        """End the warm process and all jobs, remove the temporary files. Idempotent."""
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None:
            server.close()
        self._finalizer()

    def _running_server(self) -> _Server:
        with self._lock:
            if self._closed:
                raise EvaluatorError("this evaluator is closed; open a new one to evaluate more")
            if self._server is None or not self._server.alive():
                if self._server is not None:
                    self._server.close()
                self._server = _Server(self._settings, self._folder)
            return self._server

    def _run_once(self, order: Order, timeout_s: float) -> JobResult[Any]:
        # The warm process may die before or under a job (someone killed it): one fresh start is worth a try.
        body = pickle.dumps(order)
        for _ in range(2):
            server = self._running_server()
            job = server.submit(order.folder)
            if job is not None:
                with job:
                    forked = job.wait_for_start(START_LIMIT_S)
                    if forked and not server.started:
                        server.started = True
                        took = time.monotonic() - server.born
                        _log.debug("the warm process %s forks after %.1f s", name_of(self._settings.warm), took)
                    result = job.finish(body, timeout_s, self._stopped_s) if forked else None
                    if result is not None:
                        return result
            self._discard(server)
            if not server.started:
                break
        raise EvaluatorError(
            f"the worker process ({name_of(self._settings.warm)}) does not start; the end of its log:\n{server.log_tail()}"
        )

    def _stopped_s(self) -> float:
        return self._stopped.seconds(time.monotonic())

    def _discard(self, server: _Server) -> None:
        if not self._closed:
            _log.warning("a warm worker process died (%s)", name_of(self._settings.warm))
        with self._lock:
            if self._server is server:
                self._server = None
        server.close()


def name_of(function: Callable[..., Any]) -> str:
    """By what name another process finds a function, see `server.resolve`. Raises: EvaluatorError for one it cannot find."""
    if not function.__qualname__.isidentifier() or function.__module__ == "__main__":
        raise EvaluatorError(f"{function!r} cannot be a job: only a function at the top level of a module can")
    return f"{function.__module__}:{function.__qualname__}"


def _read(function: Callable[..., Answer], result: JobResult[Any]) -> JobResult[Answer]:
    """A result with its value as what the function returns; where it is none of that, something else wrote it."""
    if result.status != "ok":
        return result
    try:
        return replace(result, value=returned(function, result.value))
    except MalformedError as error:
        _log.info("an answer of %s that is none: %s", name_of(function), error)
        return replace(result, status="crash", value=None)


class _Server:
    """The pool's side of one warm process."""

    def __init__(self, settings: PoolSettings, folder: str) -> None:
        self._lock = threading.Lock()
        self.born = time.monotonic()
        self.started = False  # whether it has ever forked a job
        self._log_path = Path(folder) / "server.log"
        self._control, theirs = socket.socketpair()
        code = _STARTER.format(
            fd=theirs.fileno(),
            warm=name_of(settings.warm),
            arguments=json.dumps(dict(settings.arguments)),
            memory_mib=settings.memory_mib,
            readable=list(map(str, settings.readable)),
            gpu=settings.gpu,
            cores=settings.cores,
        )
        with theirs:
            self._process = start(
                code,
                Path(folder),
                mode=settings.sandbox,
                environment=settings.environment,
                fds=[theirs.fileno()],
                readable=settings.readable,
                writable=settings.writable,
                gpu=settings.gpu,
                tasks=settings.workers * TASK_LIMIT + _OWN_TASKS,
                memory_mib=settings.workers * settings.memory_mib + _OWN_MIB,
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self._control)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def log_tail(self) -> str:
        """The end of what the process itself wrote, for an error message."""
        with contextlib.suppress(OSError):
            return self._log_path.read_text(errors="replace")[-2000:]
        return ""

    def submit(self, folder: str) -> Job | None:
        """A job process about to be forked, with its folder; None if the warm process is gone."""
        job = Job(folder, self._process.namespaced)
        try:
            with self._lock:
                socket.send_fds(self._control, [JOB], job.their_fds())
        except OSError:
            job.close()
            return None
        finally:
            job.close_theirs()
        return job

    def stand_still(self, on: bool) -> None:
        """See `Pool.stand_still`."""
        with self._lock, contextlib.suppress(OSError):  # one that is gone has no jobs
            self._control.send(STAND_STILL if on else GO_ON)

    def close(self) -> None:
        """End the process and its jobs."""
        self._finalizer()


def _end(process: Sandboxed, control: socket.socket) -> None:
    with contextlib.suppress(OSError):
        control.send(GOODBYE)  # the server kills its jobs and exits
    control.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2.0)
    process.end()
