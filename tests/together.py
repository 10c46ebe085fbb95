"""An evaluator that finds out how many evaluations a search has under way at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest


class Together(FakeEvaluator):
    """The `count` evaluations after the root's wait for each other: a search that does not begin them all at once fails.

    most: how many were under way at once.
    """

    most = 0

    def wait_for(self, count: int) -> Together:
        self._guard, self._begun, self._under_way, self._count = threading.Lock(), 0, 0, count
        self._meeting = threading.Barrier(count, timeout=300)
        return self

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        with self._guard:
            number, self._begun = self._begun, self._begun + 1
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        try:
            if 1 <= number <= self._count:
                self._meeting.wait()
            return super().evaluate(requests)
        finally:
            with self._guard:
                self._under_way -= 1
