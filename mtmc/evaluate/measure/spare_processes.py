"""Candidates' processes of one GPU, made before they are needed: each forks from a warm server inside the sandbox, makes its
CUDA context and waits."""

from __future__ import annotations

import logging
import queue
import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.evaluate.measure.endings import why_ended
from mtmc.evaluate.measure.jobs import serve
from mtmc.evaluate.measure.worker_settings import IDLE_S, GpuWorkerSettings, pool_settings
from mtmc.evaluate.pool.job import JobResult
from mtmc.evaluate.pool.worker import Pool

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Process:
    """A candidate's process. token: by which the oracle knows it. end: how it ended. used: by how many candidates."""

    token: str
    end: Future[JobResult[None]]
    used: int = 0


class SpareProcesses:
    """The processes of a GPU worker: a number that wait for candidates, and one for each baseline when it is asked for."""

    def __init__(self, settings: GpuWorkerSettings, folder: Path, address: str) -> None:
        """folder: the worker's own. address: of the socket there that processes connect to."""
        self._settings = settings
        self._address = address
        self._waiting: dict[str, Process] = {}  # made for candidates and not taken yet
        self._pools = {locked: Pool(pool_settings(settings, folder, locked)) for locked in (True, False)}
        self._threads = ThreadPoolExecutor(2 * settings.spares + 4, thread_name_prefix=f"mtmc-gpu{settings.index}")
        self._ready: queue.SimpleQueue[Process] = queue.SimpleQueue()
        self._makes = True  # whether one that is taken has its successor made at once
        self._closed = False

    def start(self, locked: bool) -> None:
        """Start the server that the processes of candidates, or (not locked) of baselines, fork from. Idempotent."""
        self._pools[locked].start()

    def go_on(self) -> None:
        """Let all go on that an oracle has left standing still, see `Waiting.still`: they end when they see that it is gone,
        and keep a place for ever otherwise."""
        for pool in self._pools.values():
            pool.stand_still(False)

    def close(self) -> None:
        """End all processes. Idempotent."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def fresh(self, locked: bool) -> Process:
        """A process that no candidate has been in."""
        if not locked:
            return self.spawn(locked=False)
        for _ in range(self._settings.spares + 1):
            process = self._ready.get()
            self._waiting.pop(process.token, None)
            if self._makes or self._ready.empty():
                self._make_up(1)
            if not process.end.done():
                break
            why = why_ended("it ended before it was needed", process.end)
            _log.warning("a process for candidates of GPU %s: %s", self._settings.index, why)
        return process

    def fill(self) -> None:
        """Make all that are kept ready anew; those that waited are forgotten."""
        while not self._ready.empty():
            self._ready.get()
        self._waiting.clear()
        for _ in range(self._settings.spares):
            self.offer(self.spawn(locked=True))

    @contextmanager
    def none_made(self) -> Iterator[None]:
        """While this is open, processes that are taken have no successors as long as others wait: the context of each new
        one would have to be waited for, or be in the way of what is timed. They are made at its end."""
        self._makes = False
        try:
            yield
        finally:
            self._makes = True
            self._make_up(self._settings.spares)

    def _make_up(self, most: int) -> None:
        """Make processes until there are as many as are to be kept ready, `most` at most."""
        for _ in range(0 if self._closed else min(most, self._settings.spares - self._ready.qsize())):
            self.offer(self.spawn(locked=True))

    def offer(self, process: Process) -> None:
        """A process that is ready for the next candidate."""
        self._waiting[process.token] = process
        self._ready.put(process)

    def unsettled(self) -> tuple[str, ...]:
        """Tokens of the processes that wait, as far as they live."""
        return tuple(token for token, process in self._waiting.items() if not process.end.done())

    def spawn(self, locked: bool, **prepare: Any) -> Process:
        """A process in the making. prepare: what it compiles first, see `candidate_process.serve`."""
        token = secrets.token_hex(16)
        settings = self._settings
        arguments = {"oracle": self._address, "token": token, "backend": settings.backend, "locked": locked, **prepare}
        arguments |= {"quiet": settings.quiet, "others": settings.others}
        arguments |= {"cache": str(settings.cache), "target_name": settings.hardware.target}
        return Process(token, self._threads.submit(self._pools[locked].run, serve, arguments, IDLE_S))
