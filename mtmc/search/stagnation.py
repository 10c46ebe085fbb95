"""Stagnation: how many questions in a row a coder has asked its model that led to no evaluation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mtmc.store import TrialEnd


@dataclass(frozen=True)
class Stagnation:
    """Where a run stands. questions: since the last evaluation, of ended trials. reason: why the last of them ended."""

    questions: int = 0
    reason: str = ""

    def after(self, end: TrialEnd, questions: int) -> Stagnation:
        """Once one more trial has ended. questions: that its coder asked."""
        if end.evaluations > 0:
            return Stagnation()
        if questions == 0:
            return self
        return Stagnation(self.questions + questions, end.reason)

    def reached(self, limit: int | None) -> str | None:
        """Why the search ends, in words; None while it goes on. limit: `Budget.stagnation`."""
        if limit is None or self.questions < limit:
            return None
        return f"{self.questions} questions in a row led to no evaluation; the last: {self.reason}"


def stagnation_of(ends: Iterable[tuple[int, TrialEnd | None]], questions: Mapping[int, int]) -> Stagnation:
    """Where the record of a run stands. ends: of trials by id, in the order in which they ended. questions: by trial id, see
    `Store.coder_questions`."""
    found = Stagnation()
    for trial_id, end in ends:
        if end is not None:
            found = found.after(end, questions.get(trial_id, 0))
    return found
