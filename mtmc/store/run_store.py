"""Store: what is recorded of a run, in its SQLite file or on a PostgreSQL server: create, open, read and copy it.

LangGraph's checkpoint tables are in the same database and belong to LangGraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mtmc.errors import RunError
from mtmc.redaction import Secrets, given_secrets, secrets_of
from mtmc.store import schema
from mtmc.store.attempts import AttemptTable
from mtmc.store.backend import POINTER_NAME, STORE_NAME, Backend, SqliteBackend, has_run
from mtmc.store.batches import BatchTable
from mtmc.store.evaluations import EvaluationTable
from mtmc.store.events import EventTable
from mtmc.store.folder_lock import FolderLock
from mtmc.store.in_flight import InFlightTable
from mtmc.store.model_calls import CallTable
from mtmc.store.model_requests import RequestTable
from mtmc.store.nodes import NodeTable
from mtmc.store.postgres import PostgresBackend
from mtmc.store.rows import Attempt
from mtmc.store.schema import IN_ORDER, RESUMABLE, SCHEMA_VERSION
from mtmc.task import Task

ROOT_TRIAL = -1
"""Trial id of the root's own attempt, and the number of the batch that its outcome belongs to."""

RESERVED = (
    *(STORE_NAME, POINTER_NAME, "config.yaml", "best.py", "nodes", "report.md", "progress.png", "roofline.png"),
    *(f"tree.{kind}" for kind in ("json", "graphml", "html", "png", "dot", "mmd")),
)
"""What a run writes into its folder: a folder that holds one of these is already used."""


class Store(NodeTable, BatchTable, AttemptTable, EventTable, EvaluationTable, CallTable, RequestTable, InFlightTable):
    """The open store of one run: use `create`, `open` or `read`. Its methods may be called from several threads."""

    @classmethod
    def create(cls, folder: Path, task: Task, settings: Mapping[str, Any], root: Attempt, url: str = "") -> Store:
        """A new store for `folder`, which is made if it is not there. settings: plain JSON. root: the root's own source.
        url: of a PostgreSQL server that has the record; empty: a SQLite file in the folder.

        The folder has a run once it is whole: a process killed here leaves a folder that can be used.

        Raises: RunError if the folder cannot be written or a run has used it already; ConfigError or RunError where
            there is no such server.
        """
        check_unused(folder)
        made = PostgresBackend.fresh(folder, url) if url else None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"the run folder {folder} cannot be made ({error.strerror}): choose another one") from error
        if made is not None:
            store = cls._created_on_server(made, task, settings, root)
        else:
            store = cls._created_here(folder, task, settings, root)
        store.protect(_secrets(settings))
        store._evaluated = set()
        return store

    @classmethod
    def _created_here(cls, folder: Path, task: Task, settings: Mapping[str, Any], root: Attempt) -> Store:
        lock = FolderLock(folder)
        try:
            check_unused(folder)  # again: another process may have been here before the lock
            unfinished = SqliteBackend(folder, folder / f".{STORE_NAME}.new")
            unfinished.drop()
            store = cls(folder, unfinished, unfinished.connect(), None)
            store._connection.executescript(schema.SQLITE)
            store._fill(task, settings, root)
            store.close()
            unfinished.path.rename(folder / STORE_NAME)
            backend = SqliteBackend(folder)
            return cls(folder, backend, backend.connect(), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _created_on_server(
        cls, backend: PostgresBackend, task: Task, settings: Mapping[str, Any], root: Attempt
    ) -> Store:
        connection = backend.connect()
        try:
            store = cls(backend.folder, backend, connection, backend.lock(connection))
            with store._writing():
                backend.make_schema(connection, schema.postgres())
            store._fill(task, settings, root)
            backend.write_pointer()
        except BaseException:
            connection.close()
            raise
        return store

    def _fill(self, task: Task, settings: Mapping[str, Any], root: Attempt) -> None:
        """What a run begins with."""
        self.protect(_secrets(settings))
        self._begin(task, settings)
        self.add_attempt(root)
        self._write_waiting()

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store of a run that is to go on, locked against every other process.

        Raises: RunError if there is no run, another process has it open, or a newer or an older version made it: then
            nothing in the folder is touched.
        """
        backend = backend_of(folder)
        version = _checked_version(folder, backend)
        if version < RESUMABLE:
            reason = "an older version of mtmc made it, and plans are written differently now"
            hint = "start it again in another folder, or resume it with that version; show, export and report still read it"
            raise RunError(f"the run {folder} cannot be resumed: {reason}; {hint}")
        store = cls._locked(folder, backend)
        try:
            if isinstance(backend, SqliteBackend):
                if version < IN_ORDER:
                    store._connection.executescript(schema.UPGRADE)
                store._connection.executescript(schema.LATER)
            store.protect(_secrets(store.settings()))
            store._evaluated = set(store.recorded())
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _locked(cls, folder: Path, backend: Backend) -> Store:
        if isinstance(backend, SqliteBackend):  # whose lock is not the connection's
            lock = backend.lock(None)
            try:
                return cls(folder, backend, backend.connect(), lock)
            except BaseException:
                lock.release()
                raise
        connection = backend.connect()
        try:
            return cls(folder, backend, connection, backend.lock(connection))
        except BaseException:
            connection.close()
            raise

    @classmethod
    def read(cls, folder: Path) -> Store:
        """The store of a run, to look at only; the run may be going on, or be that of an older version.

        Raises: RunError if there is no run, or a newer version made it.
        """
        backend = backend_of(folder)
        _checked_version(folder, backend)
        return cls(folder, backend, backend.connect(read_only=True), None)

    def is_current(self) -> bool:
        """Whether this version of mtmc can go on with the run: its versions then say what they hold for."""
        return self.backend.version() >= RESUMABLE

    def seconds(self) -> float:
        """Wall time spent on this run as far as it is recorded, summed over resumes."""
        [(batches, events)] = self._all("SELECT (SELECT max(seconds) FROM batches), (SELECT max(seconds) FROM events)")
        return max(batches or 0.0, events or 0.0)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """What is read meanwhile is the run at one moment, also while it goes on. For readers."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")


def check_unused(folder: Path) -> None:
    """Raises: RunError if a run has used this folder already, or it cannot be a folder."""
    try:
        used = [name for name in RESERVED if (folder / name).exists()]
    except OSError as error:
        raise RunError(f"the run folder {folder} cannot be read ({error.strerror}): choose another one") from error
    if used:
        hint = "resume that run or choose another folder" if has_run(folder) else "choose an empty folder"
        raise RunError(f"the run folder {folder} is already used, it holds {used[0]}: {hint}")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"the run folder {folder} cannot be made, it is a file: choose another one")


def _secrets(settings: Mapping[str, Any]) -> Secrets:
    """The own secrets of a run's model, as far as its settings and the environment have them."""
    model = settings.get("model") or {}
    given = given_secrets(model.get("extra") or {})
    return secrets_of(str(model.get("name", "")), str(model.get("api_base", "")), given)


def backend_of(folder: Path) -> Backend:
    """Where the record of a folder's run is. Raises: RunError if there is no run."""
    if (folder / STORE_NAME).is_file():
        return SqliteBackend(folder)
    if (folder / POINTER_NAME).is_file():
        return PostgresBackend.named_by(folder)
    raise RunError(f"there is no run in {folder}: it has no {STORE_NAME}; name the folder of a run")


def copy_run(source: Path, target: Path) -> None:
    """A copy of one run's record in another folder, as a SQLite file; the run may be open, and on a server.

    Raises: RunError if it cannot be copied.
    """
    store = Store.read(source)
    try:
        copy = SqliteBackend(target)
        with closing(copy.connect()) as there, store._reading() as here:
            try:
                if isinstance(store.backend, SqliteBackend):
                    here.backup(there)
                else:
                    there.executescript(schema.SQLITE)
                    with copy.transaction(there), store.backend.transaction(here):
                        _copy_tables(here, there)
            except copy.errors as error:
                problem = f"the run {source} cannot be copied to {target} ({error})"
                raise RunError(f"{problem}: choose another folder") from error
    finally:
        store.close()


def _copy_tables(here: Any, there: Any) -> None:
    """All rows as they are at one moment, from a server into a SQLite file."""
    here.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for table in schema.NAMES:
        rows = here.execute(f"SELECT * FROM {table}").fetchall()
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            there.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _checked_version(folder: Path, backend: Backend) -> int:
    """The version of a run's tables; 0 for all before version 3. Raises: RunError if it is newer than this mtmc."""
    version = backend.version()
    if version > SCHEMA_VERSION:
        made = f"schema {version}, this one reads up to {SCHEMA_VERSION}"
        raise RunError(f"the run {folder} was made by a newer version of mtmc ({made}): upgrade mtmc")
    return version
