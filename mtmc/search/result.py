"""SearchResult: what a search hands back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.action import Action
from mtmc.chat import POLICY
from mtmc.errors import RunError
from mtmc.outcome import Cost, Outcome
from mtmc.search import folder
from mtmc.search.course import course
from mtmc.store import Store, check_unused, copy_run
from mtmc.task.tolerance import DEFAULT, Tolerance
from mtmc.tree import KernelNode, Tree

if TYPE_CHECKING:
    from mtmc.export.record import RunRecord


@dataclass(frozen=True)
class Version:
    """A kernel version in short.

    speedup: over the root, None for a failed version. runtime_ms: median of one forward at the full shapes.
    runtime_kind: "measured" or "estimated".
    """

    node_id: int
    source: str
    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None


class RunTree(Tree):
    """The tree of a run: a `Tree` that can be handed to networkx with all that the run knows of it."""

    def __init__(self, tree: Tree, record: Callable[[], RunRecord]) -> None:
        super().__init__(tree.task_name)
        for node in tree:
            self.add(node)
        self._record = record

    def to_networkx(self) -> Any:
        """A typed `networkx.DiGraph`, see `mtmc.export.to_networkx`. Raises: RunError if the run's folder is gone."""
        from mtmc import export

        return export.to_networkx(self._record())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from mtmc.export.notebook import tree_html

        return tree_html(self)


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search.

    versions: all of them, see `tree`. annotations: search statistics by node id. baselines: what the
    root is compared with besides itself, by name. run_dir: the run's folder. finished: why the search has ended, None
    for a run that has not; cut_short: whether that was before its budget was spent, for want of a model that answers with
    something usable. evaluations: how many were spent, the root's included. guards: what the coder's versions hold
    for, as `mtmc.rewrite.guards` writes it, None where that is not known. tolerance: the task's.
    """

    versions: Tree
    annotations: Mapping[int, Mapping[str, float]]
    baselines: Mapping[str, Outcome]
    run_dir: Path
    finished: str | None
    evaluations: int
    guards: str | None = None
    tolerance: Tolerance = DEFAULT
    cut_short: bool = False
    _temporary: tempfile.TemporaryDirectory[str] | None = None
    """Keeps a folder that nobody named for as long as this result lives."""

    @cached_property
    def record(self) -> RunRecord:
        """All that a dump shows, with what only the run's folder has: legal actions, settings, costs.

        Raises: RunError if the run's folder is gone.
        """
        store = Store.read(self.run_dir)
        try:
            return _record(self, store)
        finally:
            store.close()

    @cached_property
    def tree(self) -> RunTree:
        """All versions."""
        return RunTree(self.versions, lambda: self.record)

    @property
    def undecided(self) -> str:
        """Why the task's output tells no work from none, "" where it does: such a search ends with its root."""
        return self.versions.root.outcome.undecided

    @property
    def best(self) -> Version:
        """The fastest version that is right, the root where nothing is faster."""
        return _version(self.tree, self.tree.best)

    @property
    def best_file(self) -> str:
        """The text of best.py: the best version, which refuses calls that it does not hold for."""
        return folder.handed_out(self.tree.best, self.guards, self.tolerance)

    @property
    def root(self) -> Version:
        """The reference itself as ModelNew."""
        return _version(self.tree, self.tree.root)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from mtmc.export.notebook import result_html

        return result_html(self.tree, self.evaluations, self.finished)

    def save(self, directory: Path | str) -> Path:
        """Write the run's whole folder (store, config.yaml, best.py, nodes, dumps) to `directory`.

        It can be resumed from there. Raises: RunError if the folder cannot be written or a run has used it already.
        """
        target = Path(directory)
        if target.exists() and self.run_dir.exists() and target.samefile(self.run_dir):
            write_outputs(self, target)
            return target
        check_unused(target)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"the folder {target} cannot be made ({error.strerror}): choose another one") from error
        copy_run(self.run_dir, target)
        write_outputs(self, target)
        return target


def write_outputs(result: SearchResult, directory: Path) -> None:
    """Write everything that the store's folder holds besides the store."""
    folder.write_config(directory, result.record.settings)
    folder.write_best(directory, result.tree, result.guards, result.tolerance)
    folder.write_nodes(directory, result.tree)
    folder.write_dumps(directory, result.record)


def result_of(
    store: Store,
    tree: Tree,
    notes: Mapping[int, Mapping[str, float]],
    finished: str | None,
    temporary: tempfile.TemporaryDirectory[str] | None = None,
) -> SearchResult:
    """The result of a run where it stands. tree: the store's. notes: search statistics by node id."""
    return SearchResult(
        versions=tree,
        annotations={node.id: notes[node.id] for node in tree if node.id in notes},
        baselines=store.baselines(),
        run_dir=store.folder,
        finished=finished,
        evaluations=store.evaluations(),
        guards=store.guards(),
        tolerance=store.task().tolerance,
        cut_short=store.cut_short(),
        _temporary=temporary,
    )


def _record(result: SearchResult, store: Store) -> RunRecord:
    from mtmc.export.record import RunRecord
    from mtmc.search.transcripts import transcripts

    return RunRecord(
        tree=result.versions,
        annotations=result.annotations,
        legal={node.id: tuple(zip(*store.legal(node.id), strict=True)) for node in result.tree},
        settings=store.settings(),
        evaluations=evaluation_order(store),
        spent=spent_cost(store),
        baselines=result.baselines,
        calls=store.model_calls(texts=False),
        bookings=store.bookings(),
        transcripts=transcripts(result.versions, store),
        duplicates=duplicates(result.versions, store),
        tolerance=result.tolerance,
        finished=result.finished or "",
    )


def duplicates(tree: Tree, store: Store) -> list[tuple[int, int, Action]]:
    """See `RunRecord.duplicates`. Trials of a run that another process goes on with may name versions that `tree` lacks."""
    rows = [
        row for batch in store.batches() for row in batch.trials if row.end is not None and row.end.kind == "duplicate"
    ]
    found: list[tuple[int, int, Action]] = []
    for row in sorted(rows, key=lambda row: row.trial.id):
        child = None if row.end is None else row.end.child_id
        if child is not None and child < len(tree) and row.trial.node_id < len(tree):
            found.append((row.trial.node_id, child, store.legal(row.trial.node_id)[0][row.trial.action_index]))
    return found


def evaluation_order(store: Store) -> list[int]:
    """Node ids, one an evaluation, in the order in which trials ended, see `Evaluated`."""
    return [each.node_id for each in course(store)]


def spent_cost(store: Store) -> Cost:
    """What the whole run has cost: every call of the coder, a policy's questions, and the wall time."""
    total = Cost()
    for _, cost in store.costs():
        total = total + cost
    for call in store.model_calls(texts=False):
        if call.purpose == POLICY and call.reply is not None:
            total = total + call.reply.cost
    return Cost(store.seconds(), total.usd, total.tokens_in, total.tokens_out, total.calls)


def _version(tree: Tree, node: KernelNode) -> Version:
    outcome = node.outcome
    return Version(node.id, node.source, tree.speedup(node.id), outcome.runtime_ms, outcome.runtime_kind)
