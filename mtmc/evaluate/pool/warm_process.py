"""The pool's side of a warm process (`mtmc.evaluate.pool.server`): started in the sandbox, told of jobs, ended."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.pool.job import Job
from mtmc.evaluate.pool.server import GO_ON, GOODBYE, JOB, STAND_STILL
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.watch import TASK_LIMIT
from mtmc.evaluate.sandbox.launch import Sandboxed, start

_OWN_TASKS, _OWN_MIB = 64, 2048  # of the warm process itself and of bubblewrap

_STARTER = """
from mtmc.evaluate.pool.server import main
main({fd}, {warm!r}, {arguments!r}, {memory_mib}, {readable!r}, {gpu}, {cores!r})
"""


def name_of(function: Callable[..., Any]) -> str:
    """By what name another process finds a function, see `server.resolve`. Raises: EvaluatorError for one it cannot find."""
    if not function.__qualname__.isidentifier() or function.__module__ == "__main__":
        raise EvaluatorError(f"{function!r} cannot be a job: only a function at the top level of a module can")
    return f"{function.__module__}:{function.__qualname__}"


class WarmProcess:
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
