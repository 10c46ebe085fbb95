"""A pool of worker processes: each job runs in a fresh, cheap, limited process forked from a warm one.

A job is a function of a module, its arguments (pickled on the way in) and its result (JSON on the way out, read back as
what the function says that it returns). The function's module is imported on both sides, so it loads little. The warm
process (`mtmc.evaluate.pool.server`) has imported torch and triton once; the fork costs milliseconds. A job that hangs,
crashes, runs out of memory or prints without end is killed with its whole process group, and says so in
`JobResult.status`; the next job gets another process. The pool may be used from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import CLOSED, EvaluatorError
from mtmc.evaluate.plain import MalformedError, returned
from mtmc.evaluate.pool.first_come import FirstCome
from mtmc.evaluate.pool.job import JobResult, remove_tree
from mtmc.evaluate.pool.server import Order
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.warm_process import WarmProcess, name_of
from mtmc.evaluate.sandbox.protection import require
from mtmc.evaluate.sandbox.seccomp import Profile

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

START_LIMIT_S = 180.0
"""Seconds a warm process may take to import torch and triton (a cold disk on a busy machine is slow)."""


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
        self._server: WarmProcess | None = None
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
        One that is ended for its time without having worked is run once more: an import of half a second was found so after
        three minutes on a busy machine, and the fastest version of its search was not handed out.

        Raises: TaskError as the job raised it; EvaluatorError if the workers cannot be started or the job's own code
        (not a candidate) failed.
        """
        with self._slots:
            for again in (False, True):
                self._running_server()
                with contextlib.nullcontext(folder) if folder is not None else self.folder_for() as own:
                    order = self._order(function, arguments, str(own), profile)
                    result = self._run_once(order, timeout_s or self._settings.timeout_s)
                if again or result.status != "timeout" or result.worked_s > 0:
                    break
                _log.warning("a job of %s did nothing for %.0f s: once more", name_of(function), result.seconds)
            return _read(function, result)

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

    def _running_server(self) -> WarmProcess:
        with self._lock:
            if self._closed:
                raise EvaluatorError(CLOSED)
            if self._server is None or not self._server.alive():
                if self._server is not None:
                    self._server.close()
                self._server = WarmProcess(self._settings, self._folder)
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
                    result = job.finish(body, timeout_s, self._stopped_s, self._settings.patience) if forked else None
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

    def _discard(self, server: WarmProcess) -> None:
        if not self._closed:
            _log.warning("a warm worker process died (%s)", name_of(self._settings.warm))
        with self._lock:
            if self._server is server:
                self._server = None
        server.close()


def _read(function: Callable[..., Answer], result: JobResult[Any]) -> JobResult[Answer]:
    """A result with its value as what the function returns; where it is none of that, something else wrote it."""
    if result.status != "ok":
        return result
    try:
        return replace(result, value=returned(function, result.value))
    except MalformedError as error:
        _log.info("an answer of %s that is none: %s", name_of(function), error)
        return replace(result, status="crash", value=None)
