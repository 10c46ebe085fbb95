"""Hush: work that many do at a time, and silence in which none of it is done.

A clock of microseconds sees what else a machine does. Versions are built while others are timed, and as a rule that shows
in less than an eighth of the calls. Where a verdict would rest on the clock alone, the version is timed again in silence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 10.0
"""Seconds after which silence is given up: who is still at work then may be at it for a minute."""


class Hush:
    """From any thread. Silences may last at the same time; work waits for the end of them all."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._changed = threading.Condition()
        self._at_work = self._silent = 0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Begins when there is no silence."""
        with self._changed:
            self._changed.wait_for(lambda: not self._silent)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Begins when nobody is at work, or after the longest time."""
        with self._changed:
            self._silent += 1
            self._changed.wait_for(lambda: not self._at_work, timeout=self._longest_s)
        try:
            yield
        finally:
            with self._changed:
                self._silent -= 1
                self._changed.notify_all()
