"""The warm process behind a `mtmc.evaluate.pool.worker.Pool`: imports torch and triton once, then forks one child per job.

Started by the pool inside the sandbox (`mtmc.evaluate.sandbox.launch`). Wire protocol, all on the control socket: the
pool sends `JOB` with three file descriptors (job socket, output pipe, status socket), or `GOODBYE`; the server forks,
writes "pid N" to the status socket at once, "over tasks" or "over memory" if the job's processes take more than they
may together, "worked SECONDS" now and then as they take time of cores, and "exit STATUS" (as of `os.waitpid`) when the
child has ended and its process group is killed. The pool's
closing of the status socket is the order to end the job. The child reads a pickled `Order` from the job socket (the pool
is trusted), locks itself down, and answers with JSON (the child, which runs candidates, is not trusted).
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtmc.errors import MtmcError
from mtmc.evaluate.core_split import keep_to
from mtmc.evaluate.pool.collection import loading
from mtmc.evaluate.pool.job import remove_tree
from mtmc.evaluate.pool.messages import read_message, write_message
from mtmc.evaluate.pool.watch import Watch
from mtmc.evaluate.sandbox.capabilities import end_with_parent, prctl
from mtmc.evaluate.sandbox.limits import limit_process
from mtmc.evaluate.sandbox.lockdown import lock_down
from mtmc.evaluate.sandbox.seccomp import Profile
from mtmc.evaluate.sandbox.view import view

_log = logging.getLogger(__name__)

JOB, GOODBYE = b"J", b"Q"
STAND_STILL, GO_ON = b"S", b"G"
"""All jobs: the processes of those that run are stopped where they are, those that begin meanwhile at once; and go on."""

TOLD_S = 0.1
"""Seconds of cores after which the pool is told again what a job has taken."""
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Order:
    """One job, as the pool sends it. function: see `resolve`. folder: its own. profile: how it is locked down; None: not.

    memory_mib: MiB that it may map. gpu: whether it uses one. writable, readable: paths besides what every worker needs.
    """

    function: str
    arguments: Mapping[str, Any]
    folder: str
    profile: Profile | None
    memory_mib: int
    gpu: bool
    writable: tuple[str, ...]
    readable: tuple[str, ...]


def resolve(path: str) -> Callable[..., Any]:
    """The function named "package.module:function". Raises: ImportError or AttributeError if there is none."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def main(
    control_fd: int,
    warm: str,
    arguments: str,
    memory_mib: int,
    readable: Sequence[str],
    gpu: bool,
    cores: Sequence[int] = (),
) -> None:
    """Serve until the pool closes its end. `warm` is called once with `arguments` (JSON) before the first fork.

    memory_mib: see `mtmc.evaluate.pool.watch`. readable: what jobs may read besides what every worker needs. gpu: and
    whether the GPU's devices belong to that. cores: hardware threads to keep to, see `mtmc.evaluate.core_split`.
    """
    keep_to(cores)
    control = socket.socket(fileno=control_fd)
    _leave_network()
    with contextlib.suppress(
        OSError
    ):  # a job may write below it, not make it; where the pool only reads it, it is there
        os.makedirs(os.environ["TRITON_CACHE_DIR"], exist_ok=True)
    with loading():
        resolve(warm)(**json.loads(arguments))
    for extra in ([], [Path(each) for each in readable]):
        view(extra, gpu)  # before the first fork: it is the same for every job
    if not _Server(control, Watch(memory_mib)).serve():
        remove_tree(os.getcwd())  # the pool's folder: its owner was killed and cannot
    os._exit(0)  # nothing to finalize, and torch takes a second to unload


class _Server:
    def __init__(self, control: socket.socket, watch: Watch) -> None:
        self._control = control
        self._watch = watch
        self._status: dict[int, socket.socket] = {}  # of each running child, by its process
        self._ended: set[int] = set()  # children that are killed and not yet reaped
        self._told_s: dict[int, float] = {}  # seconds of cores that the pool knows of, by child
        self._still = False

    def serve(self) -> bool:
        """Whether the pool said goodbye. False: it is gone without a word."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a job leaves behind comes here to be reaped
        try:
            while True:
                ready = self._wait(wake_read)
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                self._reap()
                self._end_unwanted(ready)
                if self._control.fileno() in ready:
                    message, fds, _, _ = socket.recv_fds(self._control, 1, 3)
                    if message in (STAND_STILL, GO_ON):
                        self._still = message == STAND_STILL
                        self._signal(self._status.keys() - self._ended)
                        continue
                    if message != JOB:
                        return message == GOODBYE
                    self._fork(*fds)
        finally:
            for pid in self._status:
                _kill_group(pid)

    def _wait(self, wake: int) -> list[int]:
        wanted = [status.fileno() for pid, status in self._status.items() if pid not in self._ended]
        pause = self._watch.wait_s() if self._status else None
        ready, _, _ = select.select([self._control.fileno(), wake, *wanted], [], [], pause)
        return ready

    def _end_unwanted(self, ready: list[int]) -> None:
        """Kill the jobs that the pool has given up, and those that take too much."""
        for pid, status in self._status.items():
            if status.fileno() in ready and pid not in self._ended:
                self._end(pid)
        for pid, excess in self._watch.look(self._status.keys() - self._ended).items():
            _write_line(self._status[pid], f"over {excess}")
            self._end(pid)
        for pid in self._status.keys() - self._ended:
            worked = self._watch.worked_s.get(pid, 0.0)
            if worked >= self._told_s.get(pid, 0.0) + TOLD_S:
                self._told_s[pid] = worked
                _write_line(self._status[pid], f"worked {worked}")

    def _end(self, pid: int) -> None:
        self._ended.add(pid)
        _kill_group(pid)

    def _signal(self, groups: Iterable[int]) -> None:
        """Stop jobs, or let them go on, as it is asked for now."""
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGSTOP if self._still else signal.SIGCONT)

    def _fork(self, job_fd: int, output_fd: int, status_fd: int) -> None:
        status = socket.socket(fileno=status_fd)
        if not self._status:
            self._watch.begin()
        pid = os.fork()
        if pid == 0:
            self._become_child(status)
            run_job(job_fd, output_fd)
        # Both sides make the group, so that it exists whichever runs first.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.close(job_fd)
        os.close(output_fd)
        self._status[pid] = status
        if self._still:
            self._signal([pid])
        _write_line(status, f"pid {pid}")

    def _become_child(self, status: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        # The pool takes the end of a status socket for the death of this server: no child may hold one open.
        for each in (*self._status.values(), status):
            each.close()

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            # While the leader is a zombie its group id cannot be reused: whatever the job left behind goes now.
            if pid in self._status:
                _kill_group(pid)
            _, result = os.waitpid(pid, 0)
            if pid in self._status:
                status = self._status.pop(pid)
                self._ended.discard(pid)
                self._told_s.pop(pid, None)
                self._watch.worked_s.pop(pid, None)
                _write_line(status, f"exit {result}")
                status.close()


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
        faulthandler.enable(2)  # a crash in native code says what Python was at
        with socket.socket(fileno=job_fd) as job_socket:
            order: Order = pickle.loads(read_message(job_socket))
            write_message(job_socket, json.dumps(_answer(order), default=asdict).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _answer(order: Order) -> Mapping[str, object]:
    try:
        _settle(order.folder)
        limit_process(order.memory_mib, reserves=order.gpu)
        if order.profile is not None:
            writable, readable = ([Path(each) for each in paths] for paths in (order.writable, order.readable))
            lock_down(order.profile, writable, readable, gpu=order.gpu)
        return {"value": resolve(order.function)(**order.arguments)}
    except MtmcError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # anything else, SystemExit say, is the candidate's: the process ends with it
        if out_of_memory(error):
            return {"error": "MemoryError", "message": str(error)[:2000]}
        return {"error": type(error).__name__, "message": "".join(traceback.format_exc())[-8000:]}


def _settle(folder: str) -> None:
    """Make a folder the present one and that of temporary files."""
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, says that an allocation failed: Python's, numpy's or torch's."""
    if error.__cause__ is not None and out_of_memory(error.__cause__):
        return True
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    phrases = (
        "can't allocate memory",
        "not enough memory",
        "bad_alloc",
        "Cannot allocate memory",
        "can't start new thread",  # for want of memory for its stack
    )
    return isinstance(error, RuntimeError | OSError) and any(phrase in text for phrase in phrases)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _write_line(status: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):  # the pool gave up on this job
        status.sendall((line + "\n").encode())


def _die_with_parent() -> None:
    """A job must not outlive a killed server, also where no name space ends with it."""
    end_with_parent()


def _leave_network() -> None:
    """Where bubblewrap has not made a network of its own: best effort, needs a privilege that few have."""
    with contextlib.suppress(Exception):
        import ctypes

        if ctypes.CDLL(None).unshare(_CLONE_NEWNET) != 0:
            _log.debug("no network namespace of its own for the workers: not permitted here")
