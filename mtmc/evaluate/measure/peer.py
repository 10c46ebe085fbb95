"""The process at the other end of a line: ending it, whether it ended by itself, and having it stand still."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator

from mtmc.evaluate.measure.wire import Line

ENDING_S = 5.0
"""Seconds that a process which closed its line has to end: Python's last words, the device's context."""


def end(line: Line, grace_s: float = 0.0) -> bool:
    """End the process and the line: its work on the device ends with it.

    grace_s: seconds that it has to end by itself. A process that closed the line is ending as a rule; killed in the midst of
    that, it would seem to have been killed for its memory, and what it says of its end would be lost.
    Returns: whether it was still there, and so was killed here.
    """
    killed = False
    with contextlib.suppress(OSError):
        pid = process_of(line)
        if pid > 1 and not (grace_s and _ends(pid, grace_s)):
            os.kill(pid, signal.SIGKILL)
            killed = True
    line.close()
    return killed


@contextlib.contextmanager
def standing_still(lines: Iterable[Line]) -> Iterator[None]:
    """While it is open, the processes at the other ends, and those that they have started (the compilers of torch.compile),
    do nothing. What they have launched goes on."""
    stopped = []
    try:
        for line in lines:
            with contextlib.suppress(OSError):
                if (pid := process_of(line)) > 1 and pid != os.getpid():
                    tell = os.killpg if os.getpgid(pid) == pid else os.kill
                    tell(pid, signal.SIGSTOP)
                    stopped.append((tell, pid))
        yield
    finally:
        for tell, pid in stopped:
            with contextlib.suppress(OSError):
                tell(pid, signal.SIGCONT)


def process_of(line: Line) -> int:
    """Number of the process that connected. Raises: OSError."""
    credentials = line.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", credentials)
    return int(pid)


def _ends(pid: int, limit_s: float) -> bool:
    """Whether a process has ended within so many seconds. Where the system does not tell, it is taken not to have."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):  # an old kernel, or a Python that was built on one
        time.sleep(limit_s)
        return False
    try:
        return bool(select.select([handle], [], [], limit_s)[0])
    finally:
        os.close(handle)
