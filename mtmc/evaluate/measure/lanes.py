"""Lanes: which GPU takes the next candidate."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

_Lane = TypeVar("_Lane")


class Lanes(Generic[_Lane]):
    """Lanes that take one candidate at a time each. From any thread.

    One that has had the task before is taken first: it has admitted the task, which for large inputs takes a second.
    """

    def __init__(self, lanes: Sequence[_Lane]) -> None:
        self._idle = list(lanes)
        self._known: dict[str, list[_Lane]] = {}
        self._free = threading.Condition()

    @contextmanager
    def one_for(self, task: str) -> Iterator[_Lane]:
        """A lane that nobody else has meanwhile. Waits for one. task: its identity."""
        with self._free:
            while not self._idle:
                self._free.wait()
            known = self._known.setdefault(task, [])
            lane = next((each for each in known if each in self._idle), self._idle[0])
            self._idle.remove(lane)
            if lane not in known:
                known.append(lane)
        try:
            yield lane
        finally:
            with self._free:
                self._idle.append(lane)
                self._free.notify()
