"""Runs in forks of a test's process that end themselves by a signal that no process survives."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any


def fork(function: Callable[..., Any], *arguments: Any) -> int:
    """Process id of a fork that calls `function` and ends."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function(*arguments)
            status = 0
        finally:
            os._exit(status)
    return pid


def die_when(happened: Callable[[], bool], moment: float) -> None:
    """Have a thread of this process end it, `moment` seconds after something has happened.

    The thread shares the fate of its process: where the machine is busy, both are late alike. A process that watches
    another one from outside may come when all is over.
    """

    def die() -> None:
        while not happened():
            time.sleep(0.001)
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
