"""Hardware threads that run at full speed just now.

The hardware threads of a rented machine belong to cores that its neighbours use as well, and move about among these. On
the host of an H100 the same loop of Python took 0.55 ms or, on two threads of three at any time and for tenths of a
second, 1.0 ms; launches took twice as long there, too. The system knows nothing of that: it tells no time that was taken
away, and one thread a core. So what a host takes is measured on a thread that was just seen to be fast, and counts where
it still is after.

The oracle alone looks, with a loop of its own. A candidate can only keep a thread busy, which makes it slow.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator

STEPS, SAMPLES = 2500, 3
"""Of the loop, which takes some 70 us; the least of so many counts."""
NEAR = 1.25
"""A thread is fast where the loop takes no more than so many times the least that it has ever taken."""
LEARNED = 3
"""Looks at all threads before the first one is chosen."""
FEWEST = 3
"""Threads below which none is looked for: oracle and candidate would share one as a rule."""


class FastThreads:
    """Finds them for the oracle (the calling thread) and for the candidate whose turn it is."""

    def __init__(
        self,
        own: Collection[int] = (),
        others: Collection[int] = (),
        pin: Callable[[int, set[int]], None] | None = None,
        loop: Callable[[], float] | None = None,
    ) -> None:
        """own: threads of this GPU, always. others: on which versions are built, and which are free while nothing is. Fewer
        than `FEWEST` of its own: every thread is taken for a fast one. pin, loop: for tests."""
        self._own = tuple(own) if len(own) >= FEWEST else ()
        self._others = tuple(each for each in others if each not in own) if self._own else ()
        self._pin = pin or os.sched_setaffinity
        self._loop = loop or _loop_seconds
        self._least = float("inf")
        self._home: int | None = None
        self._lent: int | None = None

    def settle(self, anywhere: bool = False) -> bool:
        """Have the oracle run on a fast thread, if there is one: where it runs now, as long as that is. anywhere: nothing is
        built now, so that all threads are free. Returns: whether it is fast."""
        if not self._own:
            return True
        if math.isinf(self._least):  # what fast is has to be known first
            self._found(self._free(True, ()) * LEARNED, stop=False)
        known = (self._home,) if self._home is not None and (anywhere or self._home in self._own) else ()
        self._home, fast = self._found([*known, *self._free(anywhere, {self._home, self._lent})])
        self._move(0, {self._home})
        return fast

    def fast_here(self) -> bool:
        """Whether the oracle's thread is fast now."""
        return not self._own or self._home is None or self._is_fast(self._loop())

    @contextlib.contextmanager
    def lending(self, process: int) -> Iterator[Callable[[], Callable[[], bool]]]:
        """While it is open, nothing is built, and a process can be given a fast thread: by a call, which gives another one
        that tells whether that thread is fast still. At the end it has those of this GPU again. process: its number; 0 where
        that is not known."""
        if not self._own or process in (0, os.getpid()):
            yield lambda: lambda: True
            return
        try:
            yield lambda: self._lend(process)
        finally:
            self._lent = None
            self._move(process, set(self._own))

    def _lend(self, process: int) -> Callable[[], bool]:
        known = () if self._lent is None else (self._lent,)
        thread, fast = self._found([*known, *self._free(True, {self._home, self._lent})])
        self._lent = thread
        self._move(process, {thread})
        self._move(0, {self._home} if self._home is not None else set(self._own))

        def still() -> bool:
            if not fast:
                return False
            self._move(0, {thread})
            seconds = self._loop()
            self._move(0, {self._home} if self._home is not None else set(self._own))
            return self._is_fast(seconds)

        return still

    def _free(self, anywhere: bool, taken: Collection[int | None]) -> list[int]:
        return [each for each in (*self._own, *(self._others if anywhere else ())) if each not in taken]

    def _found(self, threads: Iterable[int], stop: bool = True) -> tuple[int, bool]:
        """The first fast one of some threads, or the fastest, and whether it is fast. stop: whether none is looked at after
        a fast one."""
        best: tuple[float, int] | None = None
        for thread in threads:
            self._move(0, {thread})
            seconds = self._loop()
            if self._is_fast(seconds) and stop:
                return thread, True
            best = min(best or (seconds, thread), (seconds, thread))
        assert best is not None, "there are at least three"
        return best[1], False

    def _is_fast(self, seconds: float) -> bool:
        self._least = min(self._least, seconds)
        return seconds <= NEAR * self._least

    def _move(self, process: int, threads: set[int]) -> None:
        with contextlib.suppress(OSError):  # it has ended, or a thread was taken away: it runs where it ran
            self._pin(process, threads)


def _loop_seconds() -> float:
    least = float("inf")
    for _ in range(SAMPLES):
        started = time.perf_counter()
        for _ in range(STEPS):
            pass
        least = min(least, time.perf_counter() - started)
    return least
