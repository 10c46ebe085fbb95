"""LiveRun: one run as it grows. What its store has got since is read, and nothing of it twice."""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mtmc.action import Action
from mtmc.errors import RunError
from mtmc.export.page import PageTables, finite, page_facts, page_nodes
from mtmc.export.record import RunRecord, best_so_far, speedup_kind
from mtmc.search.course import Evaluated, course
from mtmc.search.opening import recorded_budget
from mtmc.search.result import spent_cost
from mtmc.search.run import search_statistics
from mtmc.search.transcripts import transcripts
from mtmc.store import POINTER_NAME, STORE_NAME, Store, holder_since
from mtmc.tree import Tree

STATISTICS_SHARE = 20
"""The search statistics of a run that goes on come from a replay of all of it, so of the time at most this part is spent on
them: after a replay of one second, none for so many."""

KEPT_SECONDS = 60.0
"""What only the page of a run needs is kept for so long after the page has asked for it."""

Known = Mapping[str, int]
"""How many of each list a page has already: versions, lines, actions, evaluations; and the number of its statistics."""

COUNTS = ("versions", "lines", "actions", "evaluations", "statistics")


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    state: "running" (a process of this machine has it open), "ended" (finished says why), or "stopped" (it can be resumed).
    evaluations: spent, of `budget`. seconds: of the run so far. usd: paid to models. trials: under way, each with "trial",
    "node", "kind", "sentence", "attempts", "stage". speedup, speedup_kind, runtime_ms: of the best version.
    """

    task: str
    state: str
    finished: str
    evaluations: int
    budget: int
    versions: int
    speedup: float | None
    speedup_kind: str | None
    runtime_ms: float | None
    seconds: float
    usd: float
    tokens: int
    trials: tuple[Mapping[str, Any], ...] = ()


@dataclass
class _Read:
    """What has been read of a run. statistics_due: when they may be made again; waiting: whether newer ones can be."""

    tree: Tree | None = None
    tables: PageTables = field(default_factory=PageTables)
    legal: dict[int, Sequence[tuple[Action, float]]] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    course: list[Evaluated] = field(default_factory=list)
    statistics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    statistics_number: int = 0
    statistics_due: float = 0.0
    waiting: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class LiveRun:
    """One run of a folder. Its methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._mark: tuple[int, ...] = ()
        self._read = _Read()
        self._progress: Progress | None = None
        self._curve: list[list[float]] = []
        self._generation = secrets.token_hex(8)
        self._asked = -math.inf  # when its page was asked for last
        self._before = 0.0  # seconds of the run before the process that has it open began

    @property
    def settings(self) -> Mapping[str, Any]:
        """The run's resolved settings, empty before they were read."""
        return self._read.settings

    def progress(self) -> Progress:
        """Where the run stands. Raises: RunError if it cannot be read."""
        with self._guard:
            return self._refreshed()

    def overview(self) -> tuple[Progress, list[list[float]]]:
        """Where the run stands, and its best speedup so far: [evaluations, seconds, USD, speedup], a row for each time it
        got better and one for the last evaluation. What only the tree's page needs is not kept of a run that has ended.

        Raises: RunError if it cannot be read.
        """
        with self._guard:
            progress = self._refreshed()
            if progress.state == "ended" and time.monotonic() > self._asked + KEPT_SECONDS:
                self._read = _Read(settings=self._read.settings)
            return progress, self._curve

    def changes(self, known: Known) -> dict[str, Any]:
        """What the page of the tree does not know yet, see `mtmc.export.page.page_data`; all of it where it knows nothing.

        Besides: "live" (a `Progress`), "seconds" and "usd" beside "evaluations", "notes" by version where the statistics are
        others, and "generation", another text where this is of another run by now.
        Raises: RunError if it cannot be read.
        """
        with self._guard:
            self._asked = time.monotonic()
            progress = self._refreshed()
            if self._read.tree is None:  # forgotten since
                self._mark = ()
                progress = self._refreshed()
            read = self._read
            new = read.course[known["evaluations"] :]
            changed = known["statistics"] != read.statistics_number
            notes = [[node_id, finite(notes)] for node_id, notes in read.statistics.items()] if changed else None
            return {
                **read.facts,
                **read.tables.data(known["lines"], known["actions"]),
                "task": progress.task,
                "nodes": read.nodes[known["versions"] :],
                "evaluations": [each.node_id for each in new],
                "seconds": [each.seconds for each in new],
                "usd": [each.usd for each in new],
                "notes": notes,
                "statistics": read.statistics_number,
                "generation": self._generation,
                "live": asdict(progress),
            }

    def _refreshed(self) -> Progress:
        mark = _mark(self.folder)
        if mark[:2] != self._mark[:2]:
            self._read = _Read()
            self._generation = secrets.token_hex(8) if self._mark else self._generation
        late = self._read.waiting and time.monotonic() >= self._read.statistics_due
        if mark != self._mark or late or self._progress is None:
            store = Store.read(self.folder)
            try:
                with store.frozen():
                    self._progress = self._take(store)
            finally:
                store.close()
            self._mark = mark
        since = holder_since(self.folder)
        if self._progress.finished or since is None:
            return replace(self._progress, trials=())  # those that a killed process has left are not under way
        seconds = max(self._progress.seconds, self._before + time.time() - since)
        return replace(self._progress, state="running", seconds=seconds)

    def _take(self, store: Store) -> Progress:
        """Take what is new in the store."""
        read, finished = self._read, store.finished()
        read.settings = store.settings()
        tree = read.tree = store.tree(read.tree)
        if len(tree):
            for node_id in range(len(read.legal), len(tree)):
                read.legal[node_id] = tuple(zip(*store.legal(node_id), strict=True))
            first = len(read.nodes)
            read.course = course(store)
            evaluations = [each.node_id for each in read.course]
            said = transcripts(tree, store, first)
            record = RunRecord(tree, {}, read.legal, read.settings, evaluations, transcripts=said)
            read.nodes += page_nodes(record, read.tables, first)
            read.facts = page_facts(record)
            self._curve = _curve(record, read.course)
            self._keep_statistics(store, finished is not None)
        self._before = max((at for at, kind, _ in store.events() if kind in ("start", "resume")), default=0.0)
        return self._stands(store, tree, finished)

    def _keep_statistics(self, store: Store, ended: bool) -> None:
        read, now = self._read, time.monotonic()
        assert read.tree is not None
        read.waiting = now < read.statistics_due and not ended
        if read.waiting:
            return
        found = search_statistics(store, read.tree)
        spent = time.monotonic() - now
        # What cannot be had once is not asked for again: a warning has said why.
        read.statistics_due = now + STATISTICS_SHARE * spent if found else math.inf
        if found != read.statistics:
            read.statistics, read.statistics_number = found, read.statistics_number + 1

    def _stands(self, store: Store, tree: Tree, finished: str | None) -> Progress:
        """Where the run stands, were no process at work on it."""
        best = tree.best if len(tree) else None
        cost = spent_cost(store)
        return Progress(
            task=tree.task_name,
            state="stopped" if finished is None else "ended",
            finished=finished or "",
            evaluations=store.evaluations(),
            budget=recorded_budget(self._read.settings).evaluations,
            versions=len(tree),
            speedup=None if best is None else tree.speedup(best.id),
            speedup_kind=None if best is None else speedup_kind(tree, best.id),
            runtime_ms=None if best is None else best.outcome.runtime_ms,
            seconds=store.seconds(),
            usd=cost.usd,
            tokens=cost.tokens_in + cost.tokens_out,
            trials=() if finished is not None else tuple(self._under_way(store)),
        )

    def _under_way(self, store: Store) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for each in store.in_flight():
            action = self._read.legal[each.node_id][each.action_index][0]
            facts = {"trial": each.trial, "node": each.node_id, "attempts": each.attempts, "stage": each.stage}
            found.append({**facts, "kind": action.kind, "sentence": action.sentence})
        return found


def _curve(record: RunRecord, evaluated: Sequence[Evaluated]) -> list[list[float]]:
    rows: list[list[float]] = []
    last = len(evaluated) - 1
    best: float | None = None
    for index, (each, gain) in enumerate(zip(evaluated, best_so_far(record), strict=True)):
        if gain is not None and (gain != best or index == last):
            rows.append([index + 1, each.seconds, each.usd, gain])
        best = gain
    return rows


def _mark(folder: Path) -> tuple[int, ...]:
    """Another one whenever something was written into a run's store; the first two say which file it is. Of a record on a
    server it is another one each time.

    Raises: RunError if there is none.
    """
    path = folder / STORE_NAME
    try:
        if (folder / POINTER_NAME).exists():
            status = os.stat(folder / POINTER_NAME)
            return (status.st_dev, status.st_ino, time.monotonic_ns())
        status = os.stat(path)
    except OSError as error:
        raise RunError(f"the run {folder} is gone ({error.strerror}): start mtmc watch with another folder") from error
    try:
        log = os.stat(f"{path}-wal")
        written = (log.st_size, log.st_mtime_ns)
    except OSError:
        written = (0, 0)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, *written)
