"""Attempts: the table of a run's store that has each call of a coder: what it wrote and what it took."""

from __future__ import annotations

import json

from mtmc.outcome import Cost
from mtmc.store.database import CHEAP_SECONDS, Database
from mtmc.store.rows import Attempt
from mtmc.tree import source_hash


class AttemptTable(Database):
    """A database with the table of attempts."""

    def add_attempt(self, attempt: Attempt) -> None:
        """Record one call of a coder."""
        hash_ = None if attempt.source is None else source_hash(attempt.source)
        facts = (attempt.trial_id, attempt.number, hash_, attempt.source, attempt.plan)
        cost = vars(attempt.cost)
        cheap = attempt.cost.seconds < CHEAP_SECONDS and not any(cost[name] for name in cost if name != "seconds")
        statement = "INSERT INTO edits VALUES (?, ?, ?, ?, ?, ?, ?)"  # a view: the statement writes two tables
        error = None if attempt.error is None else self.secrets.redact(attempt.error)
        self._write(statement, *facts, json.dumps(cost), error, may_wait=cheap)

    def attempts(self, trial_id: int) -> list[Attempt]:
        """The recorded calls of a trial's coder, in order."""
        query = "SELECT trial_id, number, source, plan, cost, error FROM edits WHERE trial_id = ? ORDER BY number"
        rows = self._all(query, trial_id)
        return [
            Attempt(id_, n, text, plan, Cost(**json.loads(cost)), error) for id_, n, text, plan, cost, error in rows
        ]

    def costs(self) -> list[tuple[int, Cost]]:
        """What each call of a coder took, with its trial, by trial and number."""
        rows = self._all("SELECT trial_id, cost FROM attempts ORDER BY trial_id, number")
        return [(trial_id, Cost(**json.loads(cost))) for trial_id, cost in rows]


def coding_cost(total: Cost, attempt: Cost) -> Cost:
    """Cost of a node's coding so far with one attempt more; seconds are left out, so that equal runs are equal."""
    summed = total + attempt
    return Cost(0.0, summed.usd, summed.tokens_in, summed.tokens_out, summed.calls)
