"""One job of a pool, seen from the pool: what goes in, what comes out, and how its process ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any, Literal

from mtmc.errors import EvaluatorError, TaskError

JobStatus = Literal["ok", "crash", "timeout", "out_of_memory", "output_limit"]

OUTPUT_LIMIT = 4 << 20
"""Bytes a job may write to its standard output and error together before it is killed."""
OUTPUT_KEPT = 16 << 10
"""Bytes kept of them: the last ones."""
RESULT_LIMIT = 64 << 20


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    status: "ok", or why it has no value.
    value: what the job's function returned, as JSON; None unless status is "ok".
    signal: name of the signal that ended it, e.g. "SIGSEGV", where one did.
    output: the end of what it wrote to standard output and error.
    seconds: wall time from its fork to its end.
    """

    status: JobStatus
    value: Any = None
    signal: str | None = None
    output: str = ""
    seconds: float = 0.0


class Job:
    """One forked process, seen from the pool: its job socket, the pipe of its output and the pipe of its status."""

    def __init__(self) -> None:
        self._socket, self._their_socket = socket.socketpair()
        self._output, self._their_output = os.pipe()
        self._status, self._their_status = os.pipe()
        self._pid: int | None = None
        self._exit: int | None = None
        self._status_text = b""
        self._answer = bytearray()
        self._tail = bytearray()
        self._written = 0

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def their_fds(self) -> list[int]:
        """Descriptors for the warm process: job socket, output pipe, status pipe."""
        return [self._their_socket.fileno(), self._their_output, self._their_status]

    def close_theirs(self) -> None:
        """Close this process's copies of them, once they are sent."""
        self._their_socket.close()
        os.close(self._their_output)
        os.close(self._their_status)

    def close(self) -> None:
        """Kill what still runs and close this side."""
        self._kill()
        self._socket.close()
        os.close(self._output)
        os.close(self._status)

    def wait_for_start(self, limit_s: float) -> bool:
        """Whether the process was forked. False if the warm process died or took longer than `limit_s` seconds."""
        ready, _, _ = select.select([self._status], [], [], limit_s)
        return bool(ready) and self._read_status() and self._pid is not None

    def finish(self, body: bytes, timeout_s: float) -> JobResult | None:
        """Hand over the job and collect answer, output and exit status. None if the warm process died under it."""
        start = time.monotonic()
        deadline = start + timeout_s
        with contextlib.suppress(OSError):  # the process may be dead already: its status says how
            self._socket.sendall(len(body).to_bytes(8, "little") + body)
        early = self._collect(deadline)
        self._kill()
        seconds = time.monotonic() - start
        output = bytes(self._tail).decode(errors="replace")
        if early is not None:
            return JobResult(early, output=output, seconds=seconds)
        return self._verdict(output, seconds)

    def _collect(self, deadline: float) -> JobStatus | None:
        """Read until the process has ended; the reason to kill it where there is one."""
        open_fds = [self._status, self._output, self._socket.fileno()]
        while self._status in open_fds:
            left = deadline - time.monotonic()
            ready, _, _ = select.select(open_fds, [], [], max(0.0, left))
            if not ready:
                return "timeout"
            for fd in ready:
                if not self._read(fd):
                    open_fds.remove(fd)
            if self._written > OUTPUT_LIMIT or len(self._answer) > RESULT_LIMIT:
                return "output_limit"
        self._drain(open_fds)
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
        if fd == self._status:
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
        data = os.read(self._status, 256)
        self._status_text += data
        for line in self._status_text.decode().splitlines():
            word, _, number = line.partition(" ")
            if word == "pid":
                self._pid = int(number)
            elif word == "exit":
                self._exit = int(number)
        return bool(data)

    def _verdict(self, output: str, seconds: float) -> JobResult | None:
        if self._exit is None:
            return None
        if os.WIFSIGNALED(self._exit):
            name = signal.Signals(os.WTERMSIG(self._exit)).name
            return JobResult(status_of_signal(name, output), signal=name, output=output, seconds=seconds)
        size = int.from_bytes(self._answer[:8], "little")
        if os.WEXITSTATUS(self._exit) != 0 or len(self._answer) < 8 or len(self._answer) != size + 8:
            return JobResult(status_of_signal("", output), output=output, seconds=seconds)
        try:
            answer = json.loads(self._answer[8:].decode())
        except ValueError:
            return JobResult("crash", output=output, seconds=seconds)
        return _unwrap(answer, output, seconds)

    def _kill(self) -> None:
        if self._pid is not None and self._exit is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)


def status_of_signal(name: str, output: str) -> JobStatus:
    """Status of a process that a signal ended: SIGKILL that nobody here sent, or an abort after a failed allocation,
    is out of memory; anything else is a crash. `output` is the end of what it wrote."""
    if name == "SIGKILL" or "std::bad_alloc" in output or "LLVM ERROR: out of memory" in output:
        return "out_of_memory"
    if "MemoryError" in output:
        return "out_of_memory"
    return "crash"


def _unwrap(answer: dict[str, Any], output: str, seconds: float) -> JobResult:
    if "value" in answer:
        return JobResult("ok", answer["value"], output=output, seconds=seconds)
    if answer["error"] == "MemoryError":
        return JobResult("out_of_memory", output=output + answer["message"], seconds=seconds)
    if answer["error"] == "TaskError":
        raise TaskError(answer["message"])
    raise EvaluatorError(f"an evaluation step failed by itself, which is a bug to report: {answer['message']}")
