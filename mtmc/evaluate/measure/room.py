"""Room in a device's memory: processes that compile beside what is examined hold some of it, and give way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Room:
    """Who holds memory of a device beside what is examined, and whether somebody is short of it.

    As long as somebody is, nobody new begins to hold some: else a large task waits behind a hundred small ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: set[str] = set()
        self._short = 0

    @property
    def holders(self) -> int:
        """How many hold some."""
        return len(self._holders)

    def take(self, token: str, limit_s: float) -> None:
        """Begin to hold some, not before nobody is short of it, or so many seconds later."""
        with self._changed:
            self._changed.wait_for(lambda: not self._short, limit_s)
            self._holders.add(token)

    def leave(self, token: str) -> None:
        """Hold none any more. Idempotent."""
        with self._changed:
            self._holders.discard(token)
            self._changed.notify_all()

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """While this is open, somebody is short of memory."""
        with self._changed:
            self._short += 1
        try:
            yield
        finally:
            with self._changed:
                self._short -= 1
                self._changed.notify_all()

    def wait(self, deadline: float) -> bool:
        """Wait until somebody holds none any more who does now. deadline: on the monotonic clock.

        Returns: whether it was worth it: not where nobody holds any, or the deadline has come."""
        with self._changed:
            before = len(self._holders)
            rest = deadline - time.monotonic()
            return before > 0 and rest > 0 and self._changed.wait_for(lambda: len(self._holders) < before, rest)
