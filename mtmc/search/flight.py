"""Flight: the trials under way, each in a thread of its own. Nothing waits for a trial but what needs its end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Protocol

from mtmc.store import Batch


class Flight(Protocol):
    """Batches that were asked for and have not ended."""

    def start(self, batch: Batch) -> None:
        """Let the trials of a batch begin, as soon as a thread is free for each."""
        ...

    def wait(self) -> list[int]:
        """Wait until a batch has ended; ids of those that have, in the order of their ends. Raises: what a trial raised."""
        ...

    def close(self) -> None:
        """Begin no more trials and wait for those that have begun. Idempotent."""
        ...


class ThreadedFlight:
    """Trials in threads. Its methods are for one thread."""

    def __init__(self, at_once: int, work: Callable[[int], None]) -> None:
        """at_once: threads. work: what is done for a trial, given its id."""
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="trial")
        self._work = work
        self._left: dict[int, int] = {}
        self._ends: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()

    def start(self, batch: Batch) -> None:
        """See `Flight.start`."""
        self._left[batch.id] = len(batch.trials)
        for row in batch.trials:
            self._pool.submit(self._do, batch.id, row.trial.id)

    def wait(self) -> list[int]:
        """See `Flight.wait`. Where several have ended since the last call, all of them."""
        ended: list[int] = []
        while not ended or not self._ends.empty():
            try:
                batch_id, error = self._ends.get(block=not ended)
            except Empty:
                break
            if error is not None:
                raise error
            self._left[batch_id] -= 1
            if not self._left[batch_id]:
                del self._left[batch_id]
                ended.append(batch_id)
        return ended

    def close(self) -> None:
        """See `Flight.close`."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(self, batch_id: int, trial_id: int) -> None:
        error: BaseException | None = None
        try:
            self._work(trial_id)
        except BaseException as raised:  # what ends the search is raised in the thread that waits
            error = raised
        self._ends.put((batch_id, error))
