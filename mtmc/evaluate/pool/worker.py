"""A pool of worker processes: each job runs in a fresh, cheap, limited process forked from a warm one.

A job is a function of this package by name, its arguments (pickled on the way in) and its result (JSON on the way
out). The warm process (`mtmc.evaluate.pool.server`) has imported torch and triton once; the fork costs milliseconds. A job
that hangs, crashes, runs out of memory or prints without end is killed with its whole process group, and says so in
`JobResult.status`; the next job gets another process. The pool may be used from any thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.pool.job import Job, JobResult
from mtmc.evaluate.pool.server import GOODBYE, JOB

_log = logging.getLogger(__name__)

START_LIMIT_S = 180.0
"""Seconds a warm process may take to import torch and triton (a cold disk on a busy machine is slow)."""

_STARTER = """
import sys
sys.path[:] = {path!r}
from mtmc.evaluate.pool.server import main
main({fd}, {warm!r}, {arguments!r})
"""
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LLVM_PROFILE_FILE")


@dataclass(frozen=True)
class PoolSettings:
    """One kind of worker.

    warm: function ("package.module:function") called once in the warm process, with `arguments`.
    environment: variables of the workers besides the few that are always there.
    workers: jobs at the same time. timeout_s: wall seconds a job may take. memory_mib: MiB a job may map on top of
        what the warm process has mapped.
    """

    warm: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    timeout_s: float = 60.0
    memory_mib: int = 4096


class Pool:
    """Runs jobs in limited processes. Starts its warm process on first use; `close` ends everything."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._folder = tempfile.mkdtemp(prefix="mtmc-")
        self._slots = threading.BoundedSemaphore(settings.workers)
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._closed = False
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Folder of the pool's temporary files (Triton's cache is in it); gone after `close`."""
        return Path(self._folder)

    def start(self) -> None:
        """Start the warm process without waiting for it. Raises: EvaluatorError if the pool is closed."""
        self._running_server()

    def run(self, function: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> JobResult:
        """Run one job and wait for its end; blocks while all workers are busy.

        Raises: TaskError as the job raised it; EvaluatorError if the workers cannot be started or the job's own code
        (not a candidate) failed.
        """
        with self._slots:
            self._running_server()
            folder = tempfile.mkdtemp(prefix="job-", dir=self._folder)
            try:
                limits = {"folder": folder, "memory_mib": self._settings.memory_mib}
                body = pickle.dumps({"function": function, "arguments": dict(arguments), **limits})
                return self._run_once(body, timeout_s or self._settings.timeout_s)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

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

    def _run_once(self, body: bytes, timeout_s: float) -> JobResult:
        # The warm process may die before or under a job (someone killed it): one fresh start is worth a try.
        for _ in range(2):
            server = self._running_server()
            job = server.submit()
            if job is not None:
                with job:
                    forked = job.wait_for_start(START_LIMIT_S)
                    server.started = server.started or forked
                    result = job.finish(body, timeout_s) if forked else None
                    if result is not None:
                        return result
            self._discard(server)
            if not server.started:
                break
        raise EvaluatorError(
            f"the worker process ({self._settings.warm}) does not start; the end of its log:\n{server.log_tail()}"
        )

    def _discard(self, server: _Server) -> None:
        _log.warning("a warm worker process died (%s)", self._settings.warm)
        with self._lock:
            if self._server is server:
                self._server = None
        server.close()


class _Server:
    """The pool's side of one warm process."""

    def __init__(self, settings: PoolSettings, folder: str) -> None:
        self._lock = threading.Lock()
        self.started = False  # whether it has ever forked a job
        self._log_path = Path(folder) / "server.log"
        self._control, theirs = socket.socketpair()
        code = _STARTER.format(
            path=[os.path.abspath(entry) for entry in sys.path],  # "" is the folder that Python was started in
            fd=theirs.fileno(),
            warm=settings.warm,
            arguments=json.dumps(dict(settings.arguments)),
        )
        with theirs, open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                env=_environment(settings, folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
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

    def submit(self) -> Job | None:
        """A job process about to be forked; None if the warm process is gone."""
        job = Job()
        try:
            with self._lock:
                socket.send_fds(self._control, [JOB], job.their_fds())
        except OSError:
            job.close()
            return None
        finally:
            job.close_theirs()
        return job

    def close(self) -> None:
        """End the process and its jobs."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    with contextlib.suppress(OSError):
        control.send(GOODBYE)  # the server kills its jobs and exits
    control.close()
    try:
        process.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(settings: PoolSettings, folder: str) -> dict[str, str]:
    """What a candidate may see of the environment: nothing of the user's, above all no keys."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {
        **kept,
        "HOME": folder,
        "TMPDIR": folder,
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
        **settings.environment,
    }
