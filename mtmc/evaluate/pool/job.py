"""One job of a pool, seen from the pool: what goes in, what comes out, and how its process ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from mtmc.errors import EvaluatorError, TaskError

Value = TypeVar("Value", covariant=True)
JobStatus = Literal["ok", "crash", "timeout", "out_of_memory", "output_limit", "process_limit"]

OUTPUT_LIMIT = 4 << 20
"""Bytes a job may write to its standard output and error together before it is killed."""
OUTPUT_KEPT = 16 << 10
"""Bytes kept of them: the last ones."""
RESULT_LIMIT = 64 << 20
SCRATCH_LIMIT = 1 << 30
"""Bytes that the files in a job's folder may take on the disk together."""
SCRATCH_FILES = 20_000

_LOOK_S = 1.0  # between two looks at the job's folder
_STOP_S = 5.0  # for the warm process to end a job


@dataclass(frozen=True)
class JobResult(Generic[Value]):
    """How a job ended.

    status: "ok", or why it has no value.
    value: what the job's function returned; None unless status is "ok".
    signal: name of the signal that ended it, e.g. "SIGSEGV", where one did.
    output: the end of what it wrote to standard output and error.
    seconds: wall time from its fork to its end. worked_s: of cores, by and by, as far as it was told.
    """

    status: JobStatus
    value: Value | None = None
    signal: str | None = None
    output: str = ""
    seconds: float = 0.0
    worked_s: float = 0.0


class Job:
    """One forked process, seen from the pool: its job socket, the pipe of its output and the socket of its status.

    The warm process tells on the last how the job goes; that this side closes it is the sign to end the job.

    folder: the job's own, which is watched for what it takes on the disk. namespaced: the process numbers that the warm
        process tells are of another name space, and mean nothing here.
    """

    def __init__(self, folder: str, namespaced: bool = False) -> None:
        self._folder = folder
        self._namespaced = namespaced
        self._socket, self._their_socket = socket.socketpair()
        self._output, self._their_output = os.pipe()
        self._status, self._their_status = socket.socketpair()
        self._pid: int | None = None
        self._exit: int | None = None
        self._over: JobStatus | None = None
        self._status_text = b""
        self._worked_s = 0.0
        self._answer = bytearray()
        self._tail = bytearray()
        self._written = 0

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def their_fds(self) -> list[int]:
        """Descriptors for the warm process: job socket, output pipe, status socket."""
        return [self._their_socket.fileno(), self._their_output, self._their_status.fileno()]

    def close_theirs(self) -> None:
        """Close this process's copies of them, once they are sent."""
        self._their_socket.close()
        os.close(self._their_output)
        self._their_status.close()

    def close(self) -> None:
        """End what still runs and close this side."""
        self._stop()
        self._socket.close()
        os.close(self._output)
        self._status.close()

    def wait_for_start(self, limit_s: float) -> bool:
        """Whether the process was forked. False if the warm process died or took longer than `limit_s` seconds."""
        ready, _, _ = select.select([self._status], [], [], limit_s)
        return bool(ready) and self._read_status() and self._pid is not None

    def finish(
        self,
        body: bytes,
        timeout_s: float,
        stopped_s: Callable[[], float] = lambda: 0.0,
        patience: float = 1.0,
    ) -> JobResult[Any] | None:
        """Hand over the job and collect answer (plain JSON), output and exit status; its processes have ended then.

        stopped_s: seconds that all jobs have stood still so far, which do not count. patience: see `PoolSettings`. None if
        the warm process died under it.
        """
        start, before = time.monotonic(), stopped_s()
        with contextlib.suppress(OSError):  # the process may be dead already: its status says how
            self._socket.sendall(len(body).to_bytes(8, "little") + body)

        def deadline() -> float:
            begun, left = start + stopped_s() - before, timeout_s - self._worked_s
            return min(begun + patience * timeout_s, max(begun + timeout_s, time.monotonic() + left))

        early = self._collect(deadline)
        self._stop()
        seconds = time.monotonic() - start
        output = bytes(self._tail).decode(errors="replace")
        if early is not None:
            return JobResult(early, output=output, seconds=seconds, worked_s=self._worked_s)
        return self._verdict(output, seconds)

    def _collect(self, deadline: Callable[[], float]) -> JobStatus | None:
        """Read until the process has ended; the reason to kill it where there is one. deadline: as it is now."""
        status = self._status.fileno()
        open_fds = [status, self._output, self._socket.fileno()]
        look = time.monotonic() + _LOOK_S
        while status in open_fds:
            now, until = time.monotonic(), deadline()
            if now >= until:
                return "timeout"
            ready, _, _ = select.select(open_fds, [], [], max(0.0, min(until, look) - now))
            for fd in ready:
                if not self._read(fd):
                    open_fds.remove(fd)
            if self._written > OUTPUT_LIMIT or len(self._answer) > RESULT_LIMIT:
                return "output_limit"
            if time.monotonic() >= look and self._exit is None:
                if is_too_large(self._folder):
                    return "output_limit"
                look = time.monotonic() + _LOOK_S
        self._drain([fd for fd in open_fds if fd != status])
        return None

    def _drain(self, open_fds: list[int]) -> None:
        while open_fds:
            ready, _, _ = select.select(open_fds, [], [], 0.0)
            if not ready:
                return
            for fd in ready:
                if not self._read(fd) or self._written > 2 * OUTPUT_LIMIT:
                    open_fds.remove(fd)

    def _read(self, fd: int) -> bool:
        if fd == self._status.fileno():
            return self._read_status()
        try:
            data = os.read(fd, 1 << 16)
        except ConnectionResetError:
            return False
        if fd == self._output:
            self._written += len(data)
            self._tail += data
            del self._tail[:-OUTPUT_KEPT]
        else:
            self._answer += data
        return bool(data)

    def _read_status(self) -> bool:
        try:
            data = self._status.recv(256)
        except ConnectionResetError:
            return False
        self._status_text += data
        *lines, self._status_text = self._status_text.split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "pid":
                self._pid = int(value)
            elif word == "over":
                self._over = "process_limit" if value == "tasks" else "out_of_memory"
            elif word == "exit":
                self._exit = int(value)
            elif word == "worked":
                self._worked_s = float(value)
        return bool(data)

    def _verdict(self, output: str, seconds: float) -> JobResult[Any] | None:
        if self._exit is None:
            return None
        if self._over is not None:
            return JobResult(self._over, output=output, seconds=seconds)
        if os.WIFSIGNALED(self._exit):
            name = _signal_name(os.WTERMSIG(self._exit))
            return JobResult(status_of_signal(name, output), signal=name, output=output, seconds=seconds)
        size = int.from_bytes(self._answer[:8], "little")
        if os.WEXITSTATUS(self._exit) != 0 or len(self._answer) < 8 or len(self._answer) != size + 8:
            return JobResult(status_of_signal("", output), output=output, seconds=seconds)
        try:
            answer = json.loads(self._answer[8:].decode())
        except (ValueError, RecursionError):
            return JobResult("crash", output=output, seconds=seconds)
        return _unwrap(answer, output, seconds)

    def _stop(self) -> None:
        """Have the warm process end the job, and wait until it says so."""
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _STOP_S
        while self._pid is not None and self._exit is None:
            ready, _, _ = select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not self._read_status():
                break
        if self._pid is not None and self._exit is None and not self._namespaced:
            # The warm process is gone. Inside a name space its jobs have gone with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)


def is_too_large(folder: str) -> bool:
    """Whether what lies in a job's folder is more than a job may leave there. Follows no link.

    So is what no path is long enough for. Folders are gone through one after the other: `os.walk` recurses before Python
    3.12, and a job may make more folders in folders than that stands.
    """
    size = files = 0
    left = [folder]
    while left:
        try:
            with os.scandir(left.pop()) as found:
                entries = list(found)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return True
            continue  # it is gone meanwhile, or closed
        files += len(entries)
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
        if size > SCRATCH_LIMIT or files > SCRATCH_FILES:
            return True
    return False


def remove_tree(folder: str) -> None:
    """Remove a folder that a job could write to: however deep its folders, and whatever rights they have."""
    for _ in range(2):
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--", folder], check=False, capture_output=True)


def status_of_signal(name: str, output: str) -> JobStatus:
    """Status of a process that a signal ended: SIGKILL that nobody here sent, or an abort after a failed allocation,
    is out of memory; anything else is a crash. `output` is the end of what it wrote."""
    if name == "SIGKILL" or "std::bad_alloc" in output or "LLVM ERROR: out of memory" in output:
        return "out_of_memory"
    if "MemoryError" in output:
        return "out_of_memory"
    return "crash"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time one


def _unwrap(answer: Any, output: str, seconds: float) -> JobResult[Any]:
    if isinstance(answer, dict) and "value" in answer:
        return JobResult("ok", answer["value"], output=output, seconds=seconds)
    if not isinstance(answer, dict) or not all(isinstance(answer.get(key), str) for key in ("error", "message")):
        return JobResult("crash", output=output, seconds=seconds)  # not what a job answers: something else wrote it
    if answer["error"] == "MemoryError":
        return JobResult("out_of_memory", output=output + answer["message"], seconds=seconds)
    if answer["error"] == "TaskError":
        raise TaskError(answer["message"])
    raise EvaluatorError(f"an evaluation step failed by itself, which is a bug to report: {answer['message']}")
