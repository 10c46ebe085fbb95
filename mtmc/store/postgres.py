"""Postgres: the record of a run on a PostgreSQL server, in a schema of its own, beside LangGraph's tables.

The run's folder has the file `run.postgres`, which says where; a copy of it in another machine's folder opens the same run.
The password is libpq's affair (PGPASSWORD, ~/.pgpass) and is written nowhere.

One process at a time goes on with a run: it holds an advisory lock, which the server lets go of when the connection ends.
So a lost connection is never made again: somebody else may be at work by then. What was recorded is there, and the run can
be resumed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError, RunError
from mtmc.files import write_whole
from mtmc.store.backend import LATEST, POINTER_NAME, Lock
from mtmc.store.postgres_connection import PostgresConnection

SCHEMES = ("postgresql://", "postgres://")
NAME = re.compile(r"mtmc_[a-z0-9_]{1,58}")
"""A run's schema on the server."""
GRAPHS = "mtmc_graphs"
"""The schema of the checkpoints of graphs, see `graph_saver`."""


_SESSION = (
    # A machine that is gone is noticed within a minute or so, by either end, and its lock with it.
    ("connect_timeout", "10"),
    ("keepalives_idle", "30"),
    ("keepalives_interval", "10"),
    ("keepalives_count", "3"),
)
_SERVER = ("tcp_keepalives_idle=30", "tcp_keepalives_interval=10", "tcp_keepalives_count=3")


class PostgresBackend:
    """A run's schema on a server; see `mtmc.store.backend.Backend`."""

    def __init__(self, folder: Path, url: str, schema: str) -> None:
        """Raises: ConfigError for an address that cannot be; RunError where the driver is not installed."""
        self._psycopg = _psycopg()
        checked_url(url)
        if not NAME.fullmatch(schema):
            raise ConfigError(f"the schema of a run cannot be {schema!r}: it is mtmc_ and small letters, digits and _")
        self.folder, self.url, self.schema = folder, url, schema
        self.errors: tuple[type[Exception], ...] = (self._psycopg.Error,)

    @classmethod
    def named_by(cls, folder: Path) -> PostgresBackend:
        """The one that a folder names. Raises: RunError where its file cannot be read."""
        path = folder / POINTER_NAME
        try:
            named = json.loads(path.read_text(encoding="utf-8"))
            return cls(folder, named["url"], named["schema"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} cannot be read ({error!r}): it holds the url and the schema of a run") from error

    @classmethod
    def fresh(cls, folder: Path, url: str) -> PostgresBackend:
        """One with a new name, after the folder's."""
        name = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_")[:40]
        return cls(folder, url, f"mtmc_{name or 'run'}_{secrets.token_hex(4)}")

    def write_pointer(self) -> None:
        """Name the run in its folder."""
        write_whole(self.folder / POINTER_NAME, json.dumps({"url": self.url, "schema": self.schema}) + "\n")

    def version(self) -> int:
        """See `Backend.version`."""
        connection = self.connect(read_only=True)
        try:
            if not self.has_table(connection, "meta"):
                raise RunError(f"there is no run {self.schema} on {self.url}, which {self.folder / POINTER_NAME} names")
            [(version,)] = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall()
            return int(version)
        except self.errors as error:
            raise self.failed("read", error) from error
        finally:
            connection.close()

    def connect(self, read_only: bool = False) -> PostgresConnection:
        """See `Backend.connect`."""
        options = [f"search_path={self.schema}", *_SERVER]
        if read_only:
            options.append("default_transaction_read_only=on")
        return PostgresConnection(self._connect(options))

    def lock(self, connection: PostgresConnection) -> Lock:
        """See `Backend.lock`."""
        try:
            [(taken,)] = connection.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (self.schema,)
            ).fetchall()
            if taken:
                connection.holds_lock = True
                return _Released()
            query = """
                SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE locktype = 'advisory' AND granted AND objsubid = 1
                AND (classid::bigint << 32) | objid::bigint = hashtextextended(?, 0)"""
            owners = [name for (name,) in connection.execute(query, (self.schema,)).fetchall()]
        except self.errors as error:
            raise self.failed("read", error) from error
        if _this_process() in owners:
            raise RunError(f"the run {self.folder} is open already in this process: close it first")
        owner = ", ".join(owners) or "unknown"
        raise RunError(f"the run {self.folder} is open in another process ({owner}): wait for it or end it")

    @contextmanager
    def transaction(self, connection: PostgresConnection) -> Iterator[PostgresConnection]:
        """See `Backend.transaction`."""
        with connection.raw.transaction():
            yield connection

    def has_table(self, connection: PostgresConnection, name: str) -> bool:
        """See `Backend.has_table`."""
        table, _, column = name.partition(".")
        query = "SELECT 1 FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
        more = " AND column_name = ?" if column else ""
        return bool(connection.execute(query + more, (self.schema, table, *([column] if column else []))).fetchall())

    def failed(self, doing: str, error: Exception) -> RunError:
        """See `Backend.failed`."""
        said = (str(error).strip().splitlines() or [repr(error)])[0]
        if self.is_lost(error):
            hint = f"what was recorded is there; see that the server runs, then resume the run {self.folder}"
            return RunError(f"the connection to {self.url} is lost ({said}): {hint}")
        return RunError(f"the run {self.schema} on {self.url} cannot be {doing} ({said}): see the rights of its user")

    def is_lost(self, error: Exception) -> bool:
        """See `Backend.is_lost`: no state of SQL, or one of the classes of connections and of a server that ends."""
        if not isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            return False
        state = getattr(error, "sqlstate", None)
        return state is None or state.startswith(("08", "57P"))

    @contextmanager
    def checkpoints(self) -> Iterator[tuple[Any, Any]]:
        """See `Backend.checkpoints`."""
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row

        raw = self._connect([f"search_path={self.schema}", *_SERVER])
        raw.row_factory = dict_row
        latest = LATEST.replace("?", "%s")

        def prune(thread: str) -> None:
            with raw.transaction():
                for table in ("checkpoints", "checkpoint_writes"):
                    where = f"WHERE thread_id = %s AND checkpoint_id < ({latest})"
                    raw.execute(f"DELETE FROM {table} {where}", (thread, thread))
                raw.execute(
                    "DELETE FROM checkpoint_blobs b WHERE thread_id = %s AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE "
                    "c.thread_id = b.thread_id AND c.checkpoint->'channel_versions'->>b.channel = b.version)",
                    (thread,),
                )

        try:
            saver = PostgresSaver(raw)
            saver.setup()
            yield saver, prune
        finally:
            raw.close()

    def make_schema(self, connection: PostgresConnection, script: str) -> None:
        """Make the run's schema and what is in it, in the transaction under way."""
        connection.raw.execute(f"CREATE SCHEMA {self.schema}")
        connection.raw.execute(script)

    def drop(self) -> None:
        """Take a run back that could not start."""
        connection = self._connect([])
        try:
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        finally:
            connection.close()
        (self.folder / POINTER_NAME).unlink(missing_ok=True)

    def _connect(self, options: Sequence[str]) -> Any:
        """Raises: RunError where there is no such server."""
        return _connected(self._psycopg, self.url, options)


def _connected(psycopg: Any, url: str, options: Sequence[str]) -> Any:
    """A connection of psycopg. Raises: RunError where there is no such server."""
    settings = {**dict(_SESSION), "options": " ".join(f"-c {each}" for each in options)}
    try:
        return psycopg.connect(url, autocommit=True, application_name=_this_process(), **settings)
    except psycopg.Error as error:
        said = (str(error).strip().splitlines() or [repr(error)])[-1]
        hint = "see that the server runs and knows this user; a password is taken from PGPASSWORD or ~/.pgpass"
        raise RunError(f"there is no connection to {url} ({said}): {hint}") from error


def graph_saver(url: str) -> tuple[Any, Any]:
    """LangGraph's saver for the graphs of `mtmc.search.build_graph` on a server, with its connection. Their checkpoints
    share the schema `GRAPHS`, told apart by their threads.

    Raises: ConfigError for an address that cannot be; RunError where there is no such server, or no driver.
    """
    psycopg = _psycopg()
    checked_url(url)
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    connection = _connected(psycopg, url, [f"search_path={GRAPHS}", *_SERVER])
    try:
        with connection.transaction():  # two processes may begin at once
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (GRAPHS,))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {GRAPHS}")
        connection.row_factory = dict_row
        saver = PostgresSaver(connection)
        saver.setup()
    except psycopg.Error as error:
        connection.close()
        said = (str(error).strip().splitlines() or [repr(error)])[0]
        raise RunError(f"{url} cannot keep checkpoints ({said}): see the rights of its user") from error
    return saver, connection


class _Released:
    """An advisory lock, which goes with its connection."""

    def release(self) -> None:
        """Nothing: the connection is closed."""


def checked_url(url: str) -> None:
    """Raises: ConfigError for what is no address of a PostgreSQL server, or holds a password."""
    if not url.startswith(SCHEMES):
        raise ConfigError(f"store cannot be {url!r}: use postgresql://USER@HOST/DATABASE, or leave it empty for SQLite")
    psycopg = _psycopg()
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigError(f"store cannot be what was given ({error}): use postgresql://USER@HOST/DATABASE") from error
    if parts.get("password"):
        raise ConfigError("store cannot have a password, it would be recorded: set PGPASSWORD or use ~/.pgpass")


def _this_process() -> str:
    """What the server calls this process."""
    return f"mtmc {socket.gethostname()[:32]} {os.getpid()}"


def _psycopg() -> Any:
    """The driver. Raises: RunError where it is not installed."""
    try:
        import langgraph.checkpoint.postgres
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise RunError(f"a run on PostgreSQL needs its driver ({error}): pip install 'mtmc[postgres]'") from error
    del langgraph
    return psycopg
