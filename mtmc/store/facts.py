"""Facts: the table of a run's store that has what is known of the run as a whole, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mtmc.outcome import Outcome, outcome_from_json, outcome_to_json
from mtmc.store.database import Database
from mtmc.store.schema import SCHEMA_VERSION
from mtmc.task import Task
from mtmc.task.base import variant_from_json

_REPLACE = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"

_BINARY = ("state", "binding")
"""Fields of a task that are bytes."""


class FactTable(Database):
    """A database with the table of facts."""

    def _begin(self, task: Task, settings: Mapping[str, Any]) -> None:
        """Record the task, whole, and the resolved settings."""
        fields = asdict(task)
        binary = {name: fields.pop(name) for name in _BINARY}
        plain = json.dumps(self.secrets.redact_data(settings))
        facts = {"schema": str(SCHEMA_VERSION), "task": json.dumps(fields), "settings": plain, **binary}
        with self._writing() as connection:
            connection.executemany("INSERT INTO meta VALUES (?, ?)", list(facts.items()))

    def task(self) -> Task:
        """The task of this run, whole: the file it came from is not needed any more."""
        fields = json.loads(self._meta("task"))
        for name in ("full", "small"):
            fields[name] = variant_from_json(fields[name])
        fields["held_out"] = tuple(variant_from_json(each) for each in fields["held_out"])
        return Task(**fields, **{name: self._meta(name) for name in _BINARY})

    def settings(self) -> dict[str, Any]:
        """The resolved settings of this run."""
        settings: dict[str, Any] = json.loads(self._meta("settings"))
        return settings

    def change_settings(self, settings: Mapping[str, Any]) -> None:
        """Replace the resolved settings: a resumed run may have a greater budget."""
        plain = json.dumps(self.secrets.redact_data(settings))
        self._write("UPDATE meta SET value = ? WHERE key = 'settings'", plain)

    def hardware(self) -> str | None:
        """Name in the hardware table of the GPU that runtimes are for; None before the root is recorded."""
        name: str | None = self._meta("hardware")
        return name

    def baselines(self) -> dict[str, Outcome]:
        """What the root is compared with besides itself, by name; empty before the root is recorded."""
        return {**self.first_baselines(), **self._outcomes("slow_baselines")}

    def first_baselines(self) -> dict[str, Outcome]:
        """As `baselines`, as far as they were known when the root was recorded: what the search has gone by."""
        return self._outcomes("baselines")

    def keep_slow_baselines(self, found: Mapping[str, Outcome]) -> None:
        """Record baselines that have come after the root."""
        others = outcomes_text(found)
        self._write(f"INSERT INTO meta VALUES ('slow_baselines', ?) {_REPLACE}", others)

    def guards(self) -> str | None:
        """What the coder's versions hold for, see `Coder.guards`; None before one was handed out, or where none is known."""
        text: str | None = self._meta("guards")
        return text

    def keep_guards(self, text: str) -> None:
        """Record what the coder's versions hold for."""
        self._write(f"INSERT INTO meta VALUES ('guards', ?) {_REPLACE}", text)

    def knowledge(self) -> str:
        """The knowledge of other runs that this run's questions may tell, as `mtmc.knowledge` writes it; "" for none."""
        text: str | None = self._meta("knowledge")
        return text or ""

    def keep_knowledge(self, text: str) -> None:
        """Record that knowledge: a file may be another one when the run is resumed."""
        self._write("INSERT INTO meta VALUES ('knowledge', ?) ON CONFLICT (key) DO NOTHING", text)

    def annotations(self) -> dict[int, dict[str, float]] | None:
        """The search statistics of a run when it ended last, by node id, see `Strategy.annotations`; None where none are
        kept."""
        text = self._meta("annotations")
        return None if text is None else {int(node_id): notes for node_id, notes in json.loads(text).items()}

    def keep_annotations(self, notes: Mapping[int, Mapping[str, float]]) -> None:
        """Record the search statistics, in place of those that are there."""
        plain = {node_id: dict(each) for node_id, each in notes.items()}
        self._write(f"INSERT INTO meta VALUES ('annotations', ?) {_REPLACE}", json.dumps(plain))

    def _outcomes(self, key: str) -> dict[str, Outcome]:
        return {name: outcome_from_json(each) for name, each in json.loads(self._meta(key) or "{}").items()}

    def _meta(self, key: str) -> Any:
        rows = self._all("SELECT value FROM meta WHERE key = ?", key)
        return rows[0][0] if rows else None


def outcomes_text(outcomes: Mapping[str, Outcome]) -> str:
    """Outcomes by name, as the table has them."""
    return json.dumps({name: outcome_to_json(outcomes[name]) for name in sorted(outcomes)})
