"""GpuWorkers: which GPU takes the next candidate."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

_Worker = TypeVar("_Worker")


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[_Worker]):
    """One in the line. wanted: the only worker that will do; None: any."""

    wanted: _Worker | None


class GpuWorkers(Generic[_Worker]):
    """GPU workers that take one candidate at a time each. From any thread.

    One that has had the task before is taken first: it has admitted the task, which for large inputs takes a second.
    """

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = tuple(workers)
        self._idle = list(workers)
        self._known: dict[str, list[_Worker]] = {}
        self._free = threading.Condition()
        self._line: list[_Waiting[_Worker]] = []

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
        """A worker that nobody else has meanwhile. Waits for one, behind those who came before. task: its identity.
        wanted: which; None: any."""
        worker = self._taken(task, wanted)
        try:
            yield worker
        finally:
            with self._free:
                self._idle.append(worker)
                self._free.notify_all()

    def _taken(self, task: str, wanted: _Worker | None) -> _Worker:
        me = _Waiting(wanted)
        with self._free:
            self._line.append(me)
            try:
                self._free.wait_for(lambda: next(filter(self._served, self._line), None) is me)
                known = self._known.setdefault(task, [])
                worker = wanted or next((each for each in known if each in self._idle), self._idle[0])
                self._idle.remove(worker)
            finally:
                self._line.remove(me)
                self._free.notify_all()  # there may be one for the next in line as well
            if worker not in known:
                known.append(worker)
            return worker

    def _served(self, waiting: _Waiting[_Worker]) -> bool:
        return bool(self._idle) if waiting.wanted is None else waiting.wanted in self._idle
