"""What an examination waits for."""

from __future__ import annotations

import time


class Waited:
    """What an examination waits for, in seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last, self._first = time.perf_counter(), 0.0

    def restart(self) -> None:
        """What comes now is timed."""
        self._last = time.perf_counter()

    def note(self, name: str) -> None:
        """What has passed since the last note, or the last restart. The first one ends before the first examination."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last, self._first = now, self._first or now

    def since_first(self, name: str) -> None:
        """What has passed since the first note."""
        self.seconds[name] = time.perf_counter() - self._first
