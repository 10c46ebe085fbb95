"""Events: the table of a run's store that has what happened in it, in order."""

from __future__ import annotations

import json
from typing import Any

from mtmc.store.database import Database


class EventTable(Database):
    """A database with the table of events."""

    def log(self, kind: str, seconds: float, **data: Any) -> None:
        """Append an event. seconds: of the run so far. data: plain JSON."""
        text = json.dumps(self.secrets.redact_data(data), sort_keys=True)
        self._write("INSERT INTO events (seconds, kind, data) VALUES (?, ?, ?)", seconds, kind, text)

    def events(self) -> list[tuple[float, str, dict[str, Any]]]:
        """All events in order: (seconds of the run so far, kind, data)."""
        rows = self._all("SELECT seconds, kind, data FROM events ORDER BY id")
        return [(seconds, kind, json.loads(data)) for seconds, kind, data in rows]

    def finished(self) -> str | None:
        """Why the run has ended; None where it has not, or has been resumed since."""
        for _, kind, data in reversed(self.events()):
            return str(data["reason"]) if kind == "finish" else None
        return None

    def cut_short(self) -> bool:
        """Whether the run has ended before its budget was spent, for want of a model that answers with something usable."""
        for _, kind, data in reversed(self.events()):
            return kind == "finish" and bool(data.get("cut_short", False))
        return False
