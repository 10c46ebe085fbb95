"""In flight: which trials of a run are under way, and how far each has come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from mtmc.store.database import Database

Stage = Literal["coding", "evaluating", "repairing", "evaluated"]


@dataclass(frozen=True)
class InFlight:
    """A trial that has not ended.

    trial: its id. node_id, action_index: what it tries. attempts: edits that the coder has made. stage: "coding" before the
    first edit, "evaluating" one, "repairing" one that failed, "evaluated" while the rest of its batch is waited for.
    """

    trial: int
    node_id: int
    action_index: int
    attempts: int
    stage: Stage


class InFlightTable(Database):
    """A database whose trials can be asked for."""

    def in_flight(self) -> list[InFlight]:
        """The trials that have begun and not ended, by id. Of a run that was killed: what it has left."""
        query = """
            SELECT t.id, t.node_id, t.action_index, a.number, a.hash, o.outcome FROM trials t
            LEFT JOIN attempts a ON a.trial_id = t.id AND a.number = (SELECT max(number) FROM attempts WHERE trial_id = t.id)
            LEFT JOIN outcomes o ON o.hash = a.hash AND o.gate = 'screen'
            WHERE t.kind IS NULL ORDER BY t.id"""
        return [
            InFlight(trial, node_id, index, 0 if number is None else number + 1, _stage(number, hash_, outcome))
            for trial, node_id, index, number, hash_, outcome in self._all(query)
        ]


def _stage(number: int | None, hash_: str | None, outcome: str | None) -> Stage:
    if number is None or hash_ is None:
        return "coding"
    if outcome is None:
        return "evaluating"
    return "evaluated" if json.loads(outcome)["status"] == "ok" else "repairing"
