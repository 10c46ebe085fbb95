"""A connection to PostgreSQL that takes the statements of the store, written for SQLite."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

ESCAPE = "\ue000"
"""PostgreSQL's text has no NUL, and its `meta` no bytes: both are written behind this character, and so is itself."""


class PostgresConnection:
    """A connection that takes the statements of the store. raw: psycopg's. holds_lock: whether it has taken a run's."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.holds_lock = raw, False

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> _Rows:
        """See `Backend`."""
        return _Rows(self.raw.execute(_translated(statement), [escaped(each) for each in parameters] or None))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """See `Backend`."""
        with self.raw.cursor() as cursor:
            cursor.executemany(_translated(statement), [[escaped(each) for each in row] for row in rows])

    def close(self) -> None:
        """End the connection, and give its lock back: a server sees some time after this that nobody is there any more, and
        who opens the run again meanwhile would be told that it is open. Idempotent."""
        if self.holds_lock and not self.raw.closed:
            self.holds_lock = False
            with suppress(Exception):  # the connection is lost, or in a transaction that failed: the server finds out
                self.raw.execute("SELECT pg_advisory_unlock_all()")
        self.raw.close()


class _Rows:
    """A cursor's rows, as they were written."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(unescaped(each) for each in row) for row in self._cursor.fetchall()]


def escaped(value: Any) -> Any:
    """A value as PostgreSQL's text takes it, see `ESCAPE`; numbers and None as they are."""
    if isinstance(value, bytes):
        return f"{ESCAPE}b{base64.b64encode(value).decode()}"
    if isinstance(value, str) and (ESCAPE in value or "\0" in value):
        return value.replace(ESCAPE, f"{ESCAPE}e").replace("\0", f"{ESCAPE}0")
    return value


def unescaped(value: Any) -> Any:
    """What `escaped` was given."""
    if not isinstance(value, str) or ESCAPE not in value:
        return value
    if value.startswith(f"{ESCAPE}b"):
        return base64.b64decode(value[2:])
    return value.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}e", ESCAPE)


@functools.lru_cache(maxsize=256)
def _translated(statement: str) -> str:
    """A statement with psycopg's marks of parameters."""
    return statement.replace("%", "%%").replace("?", "%s") if "?" in statement else statement
