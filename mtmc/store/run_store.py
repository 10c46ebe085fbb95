"""Store: what is recorded of a run, in its SQLite file or on a PostgreSQL server. Its tables are in `store.schema`.

LangGraph's checkpoint tables are in the same database and belong to LangGraph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.action import Action, action_from_json, action_to_json
from mtmc.errors import RunError
from mtmc.outcome import Cost, Outcome, outcome_from_json, outcome_to_json
from mtmc.protocols import Trial
from mtmc.redaction import Secrets, given_secrets, secrets_of
from mtmc.store import schema
from mtmc.store.backend import POINTER_NAME, STORE_NAME, Backend, SqliteBackend, has_run
from mtmc.store.database import CHEAP_SECONDS
from mtmc.store.evaluations import EvaluationTable
from mtmc.store.folder_lock import FolderLock
from mtmc.store.in_flight import InFlightTable
from mtmc.store.model_calls import CallTable
from mtmc.store.model_requests import RequestTable
from mtmc.store.postgres import PostgresBackend
from mtmc.store.rows import Attempt, Batch, Legal, NewNode, TrialEnd, TrialRow
from mtmc.store.schema import IN_ORDER, RESUMABLE, SCHEMA_VERSION
from mtmc.task import Task
from mtmc.task.base import variant_from_json
from mtmc.tree import ROOT_ID, KernelNode, Tree, source_hash

ROOT_TRIAL = -1
"""Trial id of the root's own attempt, and the number of the batch that its outcome belongs to."""

RESERVED = (
    *(STORE_NAME, POINTER_NAME, "config.yaml", "best.py", "nodes", "report.md", "progress.png", "roofline.png"),
    *(f"tree.{kind}" for kind in ("json", "graphml", "html", "png", "dot", "mmd")),
)
"""What a run writes into its folder: a folder that holds one of these is already used."""

_LEGAL = slice(6, None)
"""Columns of a node that say what may be done to it."""

_REPLACE = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"

_BINARY = ("state", "binding")
"""Fields of a task that are bytes."""


class Store(CallTable, RequestTable, EvaluationTable, InFlightTable):
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
        fields = asdict(task)
        binary = {name: fields.pop(name) for name in _BINARY}
        plain = json.dumps(self.secrets.redact_data(settings))
        facts = {"schema": str(SCHEMA_VERSION), "task": json.dumps(fields), "settings": plain, **binary}
        with self._writing() as connection:
            connection.executemany("INSERT INTO meta VALUES (?, ?)", list(facts.items()))
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

    def is_current(self) -> bool:
        """Whether this version of mtmc can go on with the run: its versions then say what they hold for."""
        return self.backend.version() >= RESUMABLE

    def seconds(self) -> float:
        """Wall time spent on this run as far as it is recorded, summed over resumes."""
        [(batches, events)] = self._all("SELECT (SELECT max(seconds) FROM batches), (SELECT max(seconds) FROM events)")
        return max(batches or 0.0, events or 0.0)

    def add_attempt(self, attempt: Attempt) -> None:
        """Record one call of a coder."""
        hash_ = None if attempt.source is None else source_hash(attempt.source)
        facts = (attempt.trial_id, attempt.number, hash_, attempt.source, attempt.plan)
        cost = vars(attempt.cost)
        cheap = attempt.cost.seconds < CHEAP_SECONDS and not any(cost[name] for name in cost if name != "seconds")
        statement = "INSERT INTO edits VALUES (?, ?, ?, ?, ?, ?, ?)"  # a view: the statement writes two tables
        error = None if attempt.error is None else self.secrets.redact(attempt.error)
        self._write(statement, *facts, json.dumps(cost), error, may_wait=cheap)

    def attempts(self, trial_id: int) -> list[Attempt]:
        """The recorded calls of a trial's coder, in order."""
        query = "SELECT trial_id, number, source, plan, cost, error FROM edits WHERE trial_id = ? ORDER BY number"
        rows = self._all(query, trial_id)
        return [
            Attempt(id_, n, text, plan, Cost(**json.loads(cost)), error) for id_, n, text, plan, cost, error in rows
        ]

    def costs(self) -> list[tuple[int, Cost]]:
        """What each call of a coder took, with its trial, by trial and number."""
        rows = self._all("SELECT trial_id, cost FROM attempts ORDER BY trial_id, number")
        return [(trial_id, Cost(**json.loads(cost))) for trial_id, cost in rows]

    def hardware(self) -> str | None:
        """Name in the hardware table of the GPU that runtimes are for; None before the root is recorded."""
        name: str | None = self._meta("hardware")
        return name

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

    def begin_batch(self, batch: Batch) -> None:
        """Record the trials of a batch before they start. One without trials has its seconds already."""
        with self._writing() as connection:
            facts = (batch.id, batch.asked, batch.seconds, batch.after)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING", facts)
            rows = [
                (row.trial.id, batch.id, row.trial.node_id, row.trial.action_index, row.allowance)
                for row in batch.trials
            ]
            query = "INSERT INTO trials VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL, NULL) ON CONFLICT DO NOTHING"
            connection.executemany(query, rows)

    def end_batch(
        self, batch_id: int, ends: Mapping[int, TrialEnd], nodes: Sequence[NewNode], seconds: float, ended: int
    ) -> None:
        """Record how the trials of a batch ended (by trial id) and the nodes they made: all of it or nothing.

        ended: see `Batch`.
        """
        with self._writing() as connection:
            _insert_nodes(connection, nodes)
            connection.executemany(
                "UPDATE trials SET kind = ?, child_id = ?, evaluations = ?, reason = ? WHERE id = ? AND kind IS NULL",
                [
                    (end.kind, end.child_id, end.evaluations, self.secrets.redact(end.reason), trial_id)
                    for trial_id, end in ends.items()
                ],
            )
            query = "UPDATE batches SET seconds = ?, ended = ? WHERE id = ? AND seconds IS NULL"
            connection.execute(query, (seconds, ended, batch_id))

    def add_root(self, root: NewNode, baselines: Mapping[str, Outcome], hardware: str) -> None:
        """Record the root, what it is compared with besides itself, and the hardware that runtimes are for."""
        with self._writing() as connection:
            _insert_nodes(connection, [root])
            others = json.dumps({name: outcome_to_json(baselines[name]) for name in sorted(baselines)})
            facts = [("baselines", others), ("hardware", hardware)]
            connection.executemany("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", facts)

    def has_root(self) -> bool:
        """Whether the root is recorded: without it there is nothing to resume."""
        return bool(self._all("SELECT 1 FROM nodes LIMIT 1"))

    def baselines(self) -> dict[str, Outcome]:
        """What the root is compared with besides itself, by name; empty before the root is recorded."""
        text = self._meta("baselines")
        return {name: outcome_from_json(each) for name, each in json.loads(text or "{}").items()}

    def batches(self) -> Iterator[Batch]:
        """All batches in the order in which they were asked for, with their trials."""
        rows: dict[int, list[TrialRow]] = {}
        columns = "batch, id, node_id, action_index, allowance, kind, child_id, evaluations, reason"
        query = f"SELECT {columns} FROM trials ORDER BY id"
        for batch, trial_id, node_id, index, allowance, kind, child_id, evaluations, reason in self._all(query):
            end = None if kind is None else TrialEnd(kind, child_id, evaluations, reason)
            rows.setdefault(batch, []).append(TrialRow(Trial(trial_id, node_id, index), allowance, end))
        ordered = self._has("batches.ended")
        order = "after, ended" if ordered else "id, CASE WHEN seconds IS NULL THEN NULL ELSE id END"
        for batch, asked, seconds, *place in self._all(f"SELECT id, asked, seconds, {order} FROM batches ORDER BY id"):
            after, ended = place
            yield Batch(batch, asked, tuple(rows.get(batch, ())), after, seconds, ended)

    def legal(self, node_id: int) -> tuple[tuple[Action, ...], tuple[float, ...]]:
        """The legal actions of a node and their priors. Raises: RunError for a node that is not recorded."""
        legal = self.legal_actions(node_id)
        return legal.actions, legal.priors

    def legal_actions(self, node_id: int) -> Legal:
        """What may be done to a node. Raises: RunError for a node that is not recorded."""
        rows = self._all("SELECT * FROM nodes WHERE id = ?", node_id)
        if not rows:
            raise RunError(f"no node {node_id} in the run {self.folder}")
        actions, priors, *more = rows[0][_LEGAL]
        gains = json.loads(more[0]) if more and more[0] is not None else None  # before version 4 nobody expected any
        return Legal(
            tuple(action_from_json(each) for each in json.loads(actions)),
            tuple(json.loads(priors)),
            None if gains is None else tuple(gains),
        )

    def tree(self, known: Tree | None = None) -> Tree:
        """All recorded versions, rebuilt. known: the tree as it was, to which those that were recorded since are added."""
        tree = Tree(json.loads(self._meta("task"))["name"]) if known is None else known
        for node in self._nodes(len(tree)):
            tree.add(node)
        return tree

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """What is read meanwhile is the run at one moment, also while it goes on. For readers."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    def _nodes(self, first: int) -> Iterator[KernelNode]:
        costs: dict[int, Cost] = {}
        made = (
            "SELECT trial_id, number, cost FROM attempts WHERE trial_id IN (SELECT trial_id FROM nodes WHERE id >= ?)"
        )
        for trial_id, _, cost in self._all(f"{made} ORDER BY trial_id, number", first):
            costs[trial_id] = coding_cost(costs.get(trial_id, Cost()), Cost(**json.loads(cost)))
        query = """
            SELECT n.id, n.parent_id, n.trial_id, n.attempt, e.source, e.plan, o.outcome, t.action_index
            FROM nodes n JOIN edits e ON e.trial_id = n.trial_id AND e.number = n.attempt
            JOIN outcomes o ON o.hash = n.hash AND o.gate = n.gate
            LEFT JOIN trials t ON t.id = n.trial_id WHERE n.id >= ? ORDER BY n.id"""
        for id_, parent_id, trial_id, attempt, source, plan, outcome, index in self._all(query, first):
            action = None if id_ == ROOT_ID else self.legal(parent_id)[0][index]
            found = outcome_from_json(json.loads(outcome))
            yield KernelNode(id_, parent_id, action, source, plan, found, trial_id, attempt, costs[trial_id])

    def _meta(self, key: str) -> Any:
        rows = self._all("SELECT value FROM meta WHERE key = ?", key)
        return rows[0][0] if rows else None


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


def coding_cost(total: Cost, attempt: Cost) -> Cost:
    """Cost of a node's coding so far with one attempt more; seconds are left out, so that equal runs are equal."""
    summed = total + attempt
    return Cost(0.0, summed.usd, summed.tokens_in, summed.tokens_out, summed.calls)


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


def _insert_nodes(connection: Any, nodes: Sequence[NewNode]) -> None:
    rows = []
    for new in nodes:
        node = new.node
        actions = json.dumps([action_to_json(action) for action in new.legal.actions])
        gains = None if new.legal.gains is None else json.dumps(new.legal.gains)
        facts = (node.id, node.parent_id, node.trial_id, node.repairs, node.hash, new.gate)
        rows.append((*facts, actions, json.dumps(new.legal.priors), gains))
    connection.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
