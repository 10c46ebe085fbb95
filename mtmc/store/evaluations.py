"""Evaluations: the table of a run's store that has what each evaluation found, once per source and gate."""

from __future__ import annotations

import json

from mtmc.outcome import Outcome, outcome_from_json, outcome_to_json
from mtmc.protocols import Depth
from mtmc.store.database import CHEAP_SECONDS, Database


class EvaluationTable(Database):
    """A database with the table of outcomes."""

    _evaluated: set[tuple[str, str]] | None = None
    """(hash, gate) of all outcomes, known to the one process that writes: most questions are about a new source."""

    def add_outcome(self, hash_: str, gate: Depth, batch: int, outcome: Outcome, seconds: float) -> None:
        """Record what evaluation found of a source. seconds: what the evaluation took."""
        text = json.dumps(self.secrets.redact_data(outcome_to_json(outcome)))
        statement = "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        self._write(statement, hash_, gate, batch, seconds, text, may_wait=seconds < CHEAP_SECONDS)
        if self._evaluated is not None:
            self._evaluated.add((hash_, gate))

    def add_screened(self, trial_id: int, hash_: str, attempt: int) -> None:
        """Record that a trial asks to have a source screened; it is on disk when its outcome is, at the latest."""
        self._write(
            "INSERT INTO screened VALUES (?, ?, ?) ON CONFLICT DO NOTHING", trial_id, hash_, attempt, may_wait=True
        )

    def screened_in(self, trial_id: int) -> dict[str, int]:
        """Hashes of the sources that a trial has asked to have screened, in order, each with its attempt's number."""
        query = "SELECT hash, attempt FROM screened WHERE trial_id = ? ORDER BY attempt, hash"
        return dict(self._all(query, trial_id))

    def outcome(self, hash_: str, gate: Depth) -> tuple[int, Outcome] | None:
        """What evaluation found of a source and in which batch, or None if it was not evaluated."""
        if self._evaluated is not None and (hash_, gate) not in self._evaluated:
            return None
        rows = self._all("SELECT batch, outcome FROM outcomes WHERE hash = ? AND gate = ?", hash_, gate)
        return None if not rows else (rows[0][0], outcome_from_json(json.loads(rows[0][1])))

    def recorded(self) -> list[tuple[str, str]]:
        """(hash, gate) of each evaluation that is recorded."""
        return [(hash_, gate) for hash_, gate in self._all("SELECT hash, gate FROM outcomes ORDER BY hash, gate")]

    def evaluations_made(self) -> list[tuple[str, Depth, float, Outcome]]:
        """Each evaluation: hash of the source, gate, wall seconds that it took, what was found."""
        rows = self._all("SELECT hash, gate, seconds, outcome FROM outcomes ORDER BY hash, gate")
        return [(hash_, gate, seconds, outcome_from_json(json.loads(text))) for hash_, gate, seconds, text in rows]

    def verdicts(self) -> dict[str, Outcome]:
        """What was found of each source in the end, by hash: by verification if it failed that, else by screening."""
        found: dict[str, Outcome] = {}
        query = "SELECT hash, outcome FROM outcomes WHERE gate != 'profile' ORDER BY hash, gate = 'verify'"
        for hash_, text in self._all(query):
            outcome = outcome_from_json(json.loads(text))
            if hash_ not in found or not outcome.ok:
                found[hash_] = outcome
        return found

    def profiles(self) -> dict[str, Outcome]:
        """What is known of each source that was profiled, by hash."""
        rows = self._all("SELECT hash, outcome FROM outcomes WHERE gate = 'profile' ORDER BY hash")
        return {hash_: outcome_from_json(json.loads(text)) for hash_, text in rows}

    def evaluations(self) -> int:
        """How many evaluations are recorded, the root's included, verification not."""
        [(count,)] = self._all("SELECT count(*) FROM outcomes WHERE gate = 'screen'")
        return int(count)

    def evaluations_of(self, batch_id: int) -> int:
        """How many evaluations are recorded that a batch was the first to make, verification not counted."""
        query = "SELECT count(*) FROM outcomes WHERE gate = 'screen' AND batch = ?"
        [(count,)] = self._all(query, batch_id)
        return int(count)

    def screened_by(self, batch_id: int) -> list[str]:
        """Hashes of the sources that a batch was the first to evaluate, verification not counted."""
        query = "SELECT hash FROM outcomes WHERE gate = 'screen' AND batch = ? ORDER BY hash"
        return [hash_ for (hash_,) in self._all(query, batch_id)]

    def evaluated_attempts(self) -> list[tuple[int, str, str | None, Outcome]]:
        """All attempts that were evaluated, by trial and number: (trial id, source, plan, outcome of screening)."""
        query = """
            SELECT trial_id, source, plan, outcome FROM edits JOIN outcomes USING (hash)
            WHERE gate = 'screen' ORDER BY trial_id, number"""
        rows = self._all(query)
        return [(trial, source, plan, outcome_from_json(json.loads(found))) for trial, source, plan, found in rows]
