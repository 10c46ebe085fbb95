"""Stillness: what else works on this machine stands still while calls in a row are timed.

A host that has other work takes two to three times as long for a call: on an H100 machine a version of 17 launches took
0.38 ms alone and 0.69 to 0.97 ms while nine searches of a benchmark thought about their next trials. A user's machine has
no such neighbours. So builds stop where they are, and so do processes that are said to work beside the evaluator: as a
rule for some tens of milliseconds, while a time is in doubt for seconds, after which they go on as if nothing had been.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence

Processes = Callable[[], Iterable[int]]
"""The numbers of the processes that there are now."""


class Stillness:
    """From any thread. Several GPUs may want it at the same time; it lasts until none does."""

    def __init__(self, builds: Callable[[bool], None]) -> None:
        """builds: has them stand still (True) or go on (False)."""
        self._builds = builds
        self._beside: list[Processes] = []
        self._lock, self._wanted = threading.Lock(), 0
        self._stopped: Sequence[int] = ()

    def add(self, processes: Processes) -> None:
        """Further processes of this user that stand still, too. They have to end with this process: it may be killed while
        they are stopped."""
        self._beside.append(processes)

    def want(self, on: bool) -> None:
        """One more GPU wants it, or one less."""
        with self._lock:
            self._wanted += 1 if on else -1
            if self._wanted != int(on):
                return
            self._builds(on)
            if on:
                self._stopped = [pid for each in self._beside for pid in each() if _told(pid, signal.SIGSTOP)]
            else:
                for pid in self._stopped:
                    _told(pid, signal.SIGCONT)
                self._stopped = ()


def _told(pid: int, number: signal.Signals) -> bool:
    """Send a signal. Returns: whether there is such a process of this user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False
