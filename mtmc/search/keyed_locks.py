"""KeyedLocks: one thread at a time for each key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class KeyedLocks:
    """A lock for each key, made when it is first asked for. From any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def alone_with(self, key: str) -> Iterator[None]:
        """While open, no other thread is alone with the same key."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield
