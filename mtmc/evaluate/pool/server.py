"""The warm process behind a `mtmc.evaluate.pool.worker.Pool`: imports torch and triton once, then forks one child per job.

Started by the pool as its own session with a nearly empty environment. Wire protocol, all on the control socket: the
pool sends `JOB` with three file descriptors (job socket, output pipe, status pipe), or `GOODBYE`; the server forks,
writes "pid N" to the status pipe at once and "exit STATUS" (as of `os.waitpid`) when the child has ended and its
process group is gone. The child reads a pickled job from the job socket (the pool is trusted) and answers with JSON
(the child, which runs candidates, is not).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import pickle
import resource
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mtmc.errors import MtmcError

_log = logging.getLogger(__name__)

JOB, GOODBYE = b"J", b"Q"

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
FILE_LIMIT = 256 << 20
"""Bytes any one file written by a job may have: far above a cubin, far below a disk."""


def resolve(path: str) -> Callable[..., Any]:
    """The function named "package.module:function". Raises: ImportError or AttributeError if there is none."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def main(control_fd: int, warm: str, arguments: str) -> None:
    """Serve until the pool closes its end. `warm` is called once with `arguments` (JSON) before the first fork."""
    control = socket.socket(fileno=control_fd)
    _leave_network()
    resolve(warm)(**json.loads(arguments))
    if not _Server(control).serve():
        shutil.rmtree(os.getcwd(), ignore_errors=True)  # the pool's folder: its owner was killed and cannot
    os._exit(0)  # nothing to finalize, and torch takes a second to unload


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # pid -> status pipe

    def serve(self) -> bool:
        """Whether the pool said goodbye. False: it is gone without a word."""
        wake_read, wake_write = os.pipe()
        watched: list[int] = [self._control.fileno(), wake_read]
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        try:
            while True:
                ready, _, _ = select.select(watched, [], [])
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                self._reap()
                if self._control.fileno() in ready:
                    message, fds, _, _ = socket.recv_fds(self._control, 1, 3)
                    if message != JOB:
                        return message == GOODBYE
                    self._fork(*fds)
        finally:
            for pid in self._children:
                _kill_group(pid)

    def _fork(self, job_fd: int, output_fd: int, status_fd: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_child(status_fd)
            run_job(job_fd, output_fd)
        # Both sides make the group, so that it exists whichever runs first.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.close(job_fd)
        os.close(output_fd)
        self._children[pid] = status_fd
        _write_line(status_fd, f"pid {pid}")

    def _become_child(self, status_fd: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        # The pool takes the end of a status pipe for the death of this server: no child may hold one open.
        for fd in (*self._children.values(), status_fd):
            os.close(fd)

    def _reap(self) -> None:
        for pid in list(self._children):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                continue
            # While the leader is a zombie its group id cannot be reused: whatever the job left behind goes now.
            _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            status_fd = self._children.pop(pid)
            _write_line(status_fd, f"exit {status}")
            os.close(status_fd)


def run_job(job_fd: int, output_fd: int) -> None:
    """In the child: read the job, run it under its limits, answer, exit. Never returns."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(output_fd)
        with socket.socket(fileno=job_fd) as job_socket:
            job = pickle.loads(read_message(job_socket))
            os.chdir(job["folder"])
            limit_memory(job["memory_mib"])
            answer = _answer(resolve(job["function"]), job["arguments"])
            write_message(job_socket, json.dumps(answer).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _answer(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": function(**arguments)}
    except MtmcError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except BaseException as error:
        if out_of_memory(error):
            return {"error": "MemoryError", "message": str(error)[:2000]}
        return {"error": type(error).__name__, "message": "".join(traceback.format_exc())[-8000:]}


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed: Python's, numpy's or torch's."""
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    phrases = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")
    return isinstance(error, RuntimeError | OSError) and any(phrase in text for phrase in phrases)


def read_message(source: socket.socket) -> bytes:
    """One message: eight bytes of length, then the body. Raises: EOFError if the other side closed first."""
    size = int.from_bytes(_read_exactly(source, 8), "little")
    return _read_exactly(source, size)


def write_message(target: socket.socket, body: bytes) -> None:
    """Inverse of `read_message`. Raises: OSError if the other side is gone."""
    target.sendall(len(body).to_bytes(8, "little") + body)


def _read_exactly(source: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise EOFError(f"{len(parts)} of {size} bytes came before the other side closed")
        parts += part
    return bytes(parts)


def limit_memory(memory_mib: int) -> None:
    """Let this process map at most `memory_mib` MiB more than it has mapped now, write no core and no huge file."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + (memory_mib << 20)
    _lower(resource.RLIMIT_AS, limit)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_LIMIT)


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _write_line(fd: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the pool gave up on this job
        os.write(fd, (line + "\n").encode())


def _die_with_parent() -> None:
    """Best effort: a job must not outlive a killed server. Linux only; elsewhere the pool's kill has to do."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave_network() -> None:
    """Best effort: a network namespace without interfaces. Needs a privilege that not every machine gives."""
    with contextlib.suppress(Exception):
        import ctypes

        if ctypes.CDLL(None).unshare(_CLONE_NEWNET) != 0:
            _log.debug("no network namespace of its own for the workers: not permitted here")
