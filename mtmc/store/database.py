"""Database: a run's database, its connection, transactions and errors. What is in it is for the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtmc.redaction import Secrets
from mtmc.store.backend import Backend, Lock

CHEAP_SECONDS = 0.001
"""An edit or outcome that took less than this, and no money, is written with the next record, at the latest with the
end of its batch: to lose it in a crash costs less than to write it by itself."""


class Database:
    """An open database. Its methods may be called from several threads."""

    def __init__(self, folder: Path, backend: Backend, connection: Any, lock: Lock | None) -> None:
        """lock: released by `close`; None for a reader."""
        self.folder = folder
        self.backend = backend
        self._connection = connection
        self._lost = False
        self._folder_lock = lock
        self._guard = threading.RLock()
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self.secrets = Secrets()

    def protect(self, secrets: Secrets) -> None:
        """Take these secrets, too, out of every text that is written from now on, but for kernel sources and the task: a
        source follows from replies, which are redacted before anybody sees them."""
        self.secrets = Secrets(tuple(dict.fromkeys((*secrets.own, *self.secrets.own))))

    def close(self) -> None:
        """Write what waits, close the connection and give the lock back. Idempotent."""
        with self._guard:
            try:
                if self._waiting and not self._lost:
                    self._write_waiting()
            finally:
                self._connection.close()
                if self._folder_lock is not None:
                    self._folder_lock.release()

    def _all(self, query: str, *parameters: Any) -> list[Any]:
        with self._reading() as connection:
            return connection.execute(query, parameters).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._guard:
            if self._waiting:
                self._write_waiting()
            try:
                yield self._connection
            except self.backend.errors as error:
                self._lost = self.backend.is_lost(error)
                raise self.backend.failed("read", error) from error

    def _has(self, name: str) -> bool:
        """Whether there is a table, or a column TABLE.COLUMN: older runs lack some."""
        with self._reading() as connection:
            return self.backend.has_table(connection, name)

    def _write(self, statement: str, *parameters: Any, may_wait: bool = False) -> None:
        """One statement. may_wait: write it together with the next one that may not, with a read or at the close."""
        with self._guard:
            self._waiting.append((statement, parameters))
            if not may_wait:
                self._write_waiting()

    def _write_waiting(self) -> None:
        with self._writing():
            pass

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """One transaction, of what waits and what is done in it: all of it or nothing."""
        with self._guard:
            waiting, self._waiting = self._waiting, []
            try:
                with self.backend.transaction(self._connection):
                    for statement, parameters in waiting:
                        self._connection.execute(statement, parameters)
                    yield self._connection
            except self.backend.errors as error:
                self._lost = self.backend.is_lost(error)
                raise self.backend.failed("written", error) from error
