"""Database: the SQLite file of a run, its connection, transactions and errors. What is in it is for the store."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtmc.errors import RunError
from mtmc.redaction import Secrets
from mtmc.store.folder_lock import FolderLock

STORE_NAME = "run.sqlite"

WAL_PAGES = 4096
"""Pages of the write-ahead log (16 MiB) before SQLite moves them into the file, which takes a sync of the disk."""

CHEAP_SECONDS = 0.001
"""An edit or outcome that took less than this, and no money, is written with the next record, at the latest with the
end of its batch: to lose it in a crash costs less than to write it by itself."""

_MAGIC = b"SQLite format 3\0"
_USER_VERSION = slice(60, 64)
"""Bytes of the file's header, a big-endian number: see `PRAGMA user_version`."""


class Database:
    """An open database. Its methods may be called from several threads."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: FolderLock | None) -> None:
        """lock: released by `close`; None for a reader."""
        self.folder = folder
        self._connection = connection
        self._folder_lock = lock
        self._guard = threading.RLock()
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self.secrets = Secrets()

    def protect(self, secrets: Secrets) -> None:
        """Take these secrets, too, out of every text that is written from now on, but for kernel sources and the task: a
        source follows from replies, which are redacted before anybody sees them."""
        self.secrets = Secrets(tuple(dict.fromkeys((*secrets.own, *self.secrets.own))))

    def close(self) -> None:
        """Write what waits, close the file and give the lock back. Idempotent."""
        with self._guard:
            try:
                if self._waiting:
                    self._write_waiting()
            finally:
                self._connection.close()
                if self._folder_lock is not None:
                    self._folder_lock.release()

    def _all(self, query: str, *parameters: Any) -> list[Any]:
        with self._reading() as connection:
            return connection.execute(query, parameters).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            if self._waiting:
                self._write_waiting()
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise RunError(f"{self.folder / STORE_NAME} cannot be read ({error}): is it a run of mtmc?") from error

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
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, of what waits and what is done in it: all of it or nothing."""
        with self._guard:
            waiting, self._waiting = self._waiting, []
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                with self._connection:
                    for statement, parameters in waiting:
                        self._connection.execute(statement, parameters)
                    yield self._connection
            except sqlite3.Error as error:
                hint = "see that the disk has space and the folder can be written"
                raise RunError(f"{self.folder / STORE_NAME} cannot be written ({error}): {hint}") from error


def user_version(path: Path) -> int:
    """What `PRAGMA user_version` has set, from the file's header: the file is neither locked nor changed for it.

    Raises: RunError if it cannot be read or is no SQLite file.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_USER_VERSION.stop)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): see that its folder can be read") from error
    if not header.startswith(_MAGIC) or len(header) < _USER_VERSION.stop:
        raise RunError(f"{path} cannot be read (it is no SQLite file): is it a run of mtmc?")
    return int.from_bytes(header[_USER_VERSION], "big")


def connect(path: Path) -> sqlite3.Connection:
    """Autocommit (transactions are explicit), a write-ahead log, and a sync at its checkpoints only: a killed process
    loses nothing that was committed; a power failure may lose the last steps but not the file."""
    try:
        connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    except sqlite3.Error as error:
        raise RunError(
            f"{path} cannot be opened ({error}): is it a run of mtmc, in a folder that can be written?"
        ) from error
    return connection
