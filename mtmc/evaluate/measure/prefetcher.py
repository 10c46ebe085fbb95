"""Items made ahead while something else is at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Prefetcher(Generic[_Item]):
    """Items of which the next ones can be made before they are asked for: while the candidate is at work, say. most: of
    those that are made and not taken."""

    def __init__(self, items: Iterator[_Item], most: int = 1) -> None:
        self._items, self._most = items, most
        self._ready: deque[_Item | None] = deque()

    def prepare(self) -> bool:
        """Make the next item, if there are not enough; whether one was made."""
        if len(self._ready) >= self._most or (self._ready and self._ready[-1] is None):
            return False
        self._ready.append(next(self._items, None))
        return True

    def take(self) -> _Item | None:
        """The next item; None when there is none."""
        if not self._ready:
            self.prepare()
        return self._ready.popleft()
