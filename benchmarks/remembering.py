"""An evaluator that evaluates each request once, for experiments that search the same tasks again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task

_Key = tuple[str, str, str]


class Remembering(Evaluator):
    """Asks another evaluator for what has not been asked for; from any thread. Closing it closes that one.

    So the same version has the same runtime in all searches, which then differ only in what they try. Who asks for what
    another one has asked for meanwhile waits for it. A request that the evaluator itself fails in is not remembered.
    """

    def __init__(self, inner: Evaluator) -> None:
        self._inner = inner
        self._known: dict[_Key, Future[Outcome]] = {}
        self._lock = threading.Lock()
        self.hardware = inner.hardware
        self.verifies, self.profiles = inner.verifies, inner.profiles

    @property
    def known(self) -> int:
        """Requests that were evaluated, or are."""
        return len(self._known)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `Evaluator`."""
        keys = [(each.task.source, each.source, each.depth) for each in requests]
        mine: dict[_Key, EvaluationRequest] = {}
        with self._lock:
            for key, request in zip(keys, requests, strict=True):
                if key not in self._known:
                    self._known[key], mine[key] = Future(), request
            waited = [self._known[key] for key in keys]
        try:
            for key, outcome in zip(mine, self._inner.evaluate(list(mine.values())), strict=True):
                self._known[key].set_result(outcome)
        except BaseException as error:
            with self._lock:
                failed = [self._known.pop(key) for key in mine]
            for future in failed:
                future.set_exception(error)
            raise
        return [future.result() for future in waited]

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """See `Evaluator`."""
        return self._inner.baselines(task)

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """See `Evaluator`."""
        return self._inner.slow_baselines(task)

    def imports(self, source: str) -> Outcome | None:
        """See `Evaluator`."""
        return self._inner.imports(source)

    def beside(self, processes: Callable[[], Iterable[int]]) -> None:
        """See `Evaluator`."""
        self._inner.beside(processes)

    def close(self) -> None:
        """See `Evaluator`."""
        self._inner.close()
