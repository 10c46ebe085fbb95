"""Requests: the table of a run's store that has what is booked of every request to a language model.

A question (`store.model_calls`) is recorded when its reply is there; its requests before each is sent, with the most that
they may take. So what a killed process has sent is in the books, and stays there at that price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields

from mtmc.booking import Booking
from mtmc.store.database import Database

_COLUMNS = tuple(each.name for each in fields(Booking))


class RequestTable(Database):
    """A database with the table of model requests."""

    def book(self, booking: Booking) -> int:
        """Record a request; the id it is recorded under. It is on disk when this returns."""
        names, marks = ", ".join(_COLUMNS), ", ".join("?" * len(_COLUMNS))
        with self._writing() as connection:
            statement = f"INSERT INTO model_requests ({names}) VALUES ({marks}) RETURNING id"
            [(number,)] = connection.execute(statement, tuple(asdict(booking).values())).fetchall()
            return int(number)

    def rebook(self, request_id: int, booking: Booking) -> None:
        """Record what a request has come to in place of what was reserved for it."""
        places = ", ".join(f"{name} = ?" for name in _COLUMNS)
        self._write(f"UPDATE model_requests SET {places} WHERE id = ?", *asdict(booking).values(), request_id)

    def bookings(self, key: str | None = None) -> list[Booking]:
        """All requests in the order in which they began, or those of one question."""
        if not self._has("model_requests"):
            return []  # a run from before requests were booked
        query = f"SELECT {', '.join(_COLUMNS)} FROM model_requests"
        rows = (
            self._all(f"{query} ORDER BY id") if key is None else self._all(f"{query} WHERE key = ? ORDER BY id", key)
        )
        return [Booking(*row) for row in rows]


def total(key: str, bookings: Iterable[Booking]) -> Booking:
    """Several bookings as one, of a question that is replayed. Those that were refused count nothing."""
    calls, tokens, usd, seconds = 0, 0, 0.0, 0.0
    for each in bookings:
        if each.state != "refused":
            calls, tokens = calls + each.calls, tokens + each.tokens
            usd, seconds = usd + each.usd, seconds + each.seconds
    return Booking(key, "replayed", calls, tokens, usd, seconds)
