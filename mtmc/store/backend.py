"""Backend: where a run's record is. SQLite in the run's folder, or a PostgreSQL server that the folder names.

The tables, and the statements on them, are the same (`run_store.Store`); what differs stands in a backend.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from mtmc.errors import RunError
from mtmc.store.folder_lock import FolderLock

STORE_NAME = "run.sqlite"
POINTER_NAME = "run.postgres"
"""The file of a folder whose run is on a PostgreSQL server: where that is, without any password."""

WAL_PAGES = 4096
"""Pages of the write-ahead log (16 MiB) before SQLite moves them into the file, which takes a sync of the disk."""

LATEST = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ?"

_MAGIC = b"SQLite format 3\0"
_USER_VERSION = slice(60, 64)
"""Bytes of the file's header, a big-endian number: see `PRAGMA user_version`."""


class Lock(Protocol):
    """What keeps other processes from going on with a run."""

    def release(self) -> None:
        """Give it back. Idempotent."""
        ...


class Backend(Protocol):
    """One run's database.

    errors: what its driver raises. Statements have `?` for parameters; a connection has `execute`, whose cursor has
    `fetchall`, `executemany` and `close`.
    """

    errors: tuple[type[Exception], ...]

    def version(self) -> int:
        """The version of its tables; nothing is changed for it. Raises: RunError where it cannot be read."""
        ...

    def connect(self, read_only: bool = False) -> Any:
        """A connection. Raises: RunError where there can be none."""
        ...

    def lock(self, connection: Any) -> Lock:
        """Keep every other process out. Raises: RunError where one is in."""
        ...

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """All of what is done meanwhile, or nothing."""
        ...

    def has_table(self, connection: Any, name: str) -> bool:
        """Whether there is a table, or a column TABLE.COLUMN."""
        ...

    def failed(self, doing: str, error: Exception) -> RunError:
        """The error to raise where the driver raised one. doing: "read" or "written"."""
        ...

    def is_lost(self, error: Exception) -> bool:
        """Whether what the driver raised means that the connection is of no use any more."""
        ...

    def drop(self) -> None:
        """Take a run back that could not start."""
        ...

    def checkpoints(self) -> AbstractContextManager[tuple[Any, Any]]:
        """LangGraph's saver in this database, and what forgets all but the latest checkpoint of a thread."""
        ...


class SqliteBackend:
    """The SQLite file of a folder; see `Backend`."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, folder: Path, path: Path | None = None) -> None:
        """path: of the file, where it has not got its name yet."""
        self.folder = folder
        self.path = path or folder / STORE_NAME

    def version(self) -> int:
        """See `Backend.version`."""
        return user_version(self.path)

    def connect(self, read_only: bool = False) -> Any:
        """Autocommit (transactions are explicit), a write-ahead log, and a sync at its checkpoints only: a killed process
        loses nothing that was committed; a power failure may lose the last steps but not the file."""
        try:
            connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        except sqlite3.Error as error:
            hint = "is it a run of mtmc, in a folder that can be written?"
            raise RunError(f"{self.path} cannot be opened ({error}): {hint}") from error
        if read_only:
            try:
                connection.execute("PRAGMA query_only = 1")
            except sqlite3.Error as error:
                raise self.failed("read", error) from error
        return connection

    def lock(self, connection: Any) -> Lock:
        """See `Backend.lock`."""
        return FolderLock(self.folder)

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[Any]:
        """See `Backend.transaction`."""
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection

    def has_table(self, connection: Any, name: str) -> bool:
        """See `Backend.has_table`."""
        table, _, column = name.partition(".")
        if column:
            query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
            return bool(connection.execute(query, (table, column)).fetchall())
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall())

    def failed(self, doing: str, error: Exception) -> RunError:
        """See `Backend.failed`."""
        hints = {"read": "is it a run of mtmc?", "written": "see that the disk has space and the folder can be written"}
        return RunError(f"{self.folder / STORE_NAME} cannot be {doing} ({error}): {hints[doing]}")

    def is_lost(self, error: Exception) -> bool:
        """See `Backend.is_lost`."""
        return False

    def drop(self) -> None:
        """See `Backend.drop`."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def checkpoints(self) -> Iterator[tuple[Any, Any]]:
        """See `Backend.checkpoints`. SQLite uses the space of what is forgotten again, so the file stays as it is."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        with closing(sqlite3.connect(self.path, timeout=30.0, check_same_thread=False)) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")

            def prune(thread: str) -> None:
                with connection:
                    for table in ("checkpoints", "writes"):
                        where = f"WHERE thread_id = ? AND checkpoint_id < ({LATEST})"
                        connection.execute(f"DELETE FROM {table} {where}", (thread, thread))

            yield SqliteSaver(connection), prune


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


def has_run(folder: Path) -> bool:
    """Whether a run's record is in a folder, or named by it."""
    return (folder / STORE_NAME).is_file() or (folder / POINTER_NAME).is_file()


def runs_below(folder: Path) -> list[Path]:
    """The folders of all runs in a folder or below it, by path."""
    return sorted({path.parent for name in (STORE_NAME, POINTER_NAME) for path in folder.rglob(name)})
