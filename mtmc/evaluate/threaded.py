"""What evaluators have in common that evaluate each request by itself, several at the same time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mtmc.errors import CLOSED, EvaluatorError
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator

Own = TypeVar("Own", bound="ThreadedEvaluator")


class ThreadedEvaluator(Evaluator):
    """Evaluates requests in the threads `_threads` until `_closed`; closes itself at the end of a with statement."""

    _threads: ThreadPoolExecutor
    _closed: bool

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """One outcome per request, same order; as many at the same time as there are threads.

        Raises: TaskError if a reference fails or cannot be measured; EvaluatorError if the evaluator's own means fail.
        """
        if self._closed:
            raise EvaluatorError(CLOSED)
        if len(requests) > 1:
            return list(self._threads.map(self._evaluate_one, requests))
        return [self._evaluate_one(request) for request in requests]

    @abstractmethod
    def _evaluate_one(self, request: EvaluationRequest) -> Outcome:
        """What one version is worth."""
