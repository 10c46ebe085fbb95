"""GpuWorkers: which GPU takes the next candidate."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

_Worker = TypeVar("_Worker")


class GpuWorkers(Generic[_Worker]):
    """GPU workers that take one candidate at a time each. From any thread.

    One that has had the task before is taken first: it has admitted the task, which for large inputs takes a second.
    """

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = tuple(workers)
        self._idle = list(workers)
        self._known: dict[str, list[_Worker]] = {}
        self._free = threading.Condition()

    def home(self, task: str) -> _Worker:
        """The worker for what is made of a task beside its candidates: the first that has had it, else the one with the
        fewest tasks, which has it from now on. It may be at work. task: its identity."""
        with self._free:
            known = self._known.setdefault(task, [])
            if not known:
                tasks = {each: sum(each in had for had in self._known.values()) for each in self._workers}
                known.append(min(self._workers, key=lambda each: tasks[each]))
            return known[0]

    @contextmanager
    def one_for(self, task: str, wanted: _Worker | None = None) -> Iterator[_Worker]:
        """A worker that nobody else has meanwhile. Waits for one. task: its identity. wanted: which; None: any."""
        with self._free:
            while not self._idle if wanted is None else wanted not in self._idle:
                self._free.wait()
            known = self._known.setdefault(task, [])
            worker = wanted or next((each for each in known if each in self._idle), self._idle[0])
            self._idle.remove(worker)
            if worker not in known:
                known.append(worker)
        try:
            yield worker
        finally:
            with self._free:
                self._idle.append(worker)
                self._free.notify_all()
