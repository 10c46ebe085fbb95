"""First come, first served.

`threading`'s locks are free to whoever asks first once they are let go. That is nearly always the thread that had them,
which never went to sleep, so one that works in a loop keeps all others out for as long as it runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FirstCome:
    """A semaphore that is handed to the thread that has waited longest. places: how many may have it at a time."""

    def __init__(self, places: int = 1) -> None:
        self._guard, self._free = threading.Lock(), places
        self._line: deque[threading.Lock] = deque()  # of those who wait; each lock is let go when it is their turn

    def __enter__(self) -> FirstCome:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take a place; wait for it behind those who came before."""
        turn = threading.Lock()
        with self._guard:
            if self._free:
                self._free -= 1
                return
            turn.acquire()
            self._line.append(turn)
        try:
            turn.acquire()
        except BaseException:  # an interrupt of the main thread: it has left the line, or passes on what it was handed
            with self._guard:
                waits = turn in self._line
                if waits:
                    self._line.remove(turn)
            if not waits:
                self.release()
            raise

    @contextmanager
    def at_once(self) -> Iterator[bool]:
        """Take a place if one is free, which it is only if nobody waits; gives whether it was."""
        with self._guard:
            mine = self._free > 0
            self._free -= int(mine)
        try:
            yield mine
        finally:
            if mine:
                self.release()

    def release(self) -> None:
        """Give the place to who has waited longest. From any thread."""
        with self._guard:
            if self._line:
                self._line.popleft().release()
            else:
                self._free += 1
