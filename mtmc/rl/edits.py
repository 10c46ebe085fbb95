"""edits: (parent, action, child) of runs and of recorded trees, as a coder is asked live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import CoderError, RunError, TaskError
from mtmc.outcome import speedup
from mtmc.protocols import EditRequest
from mtmc.rl.trees import RecordedNode, RecordedTree
from mtmc.search.run_state import history
from mtmc.store import Store
from mtmc.tree import KernelNode, source_hash


@dataclass(frozen=True)
class RecordedEdit:
    """A right version and what it was made from.

    request: as the coder got it, without a context. child: the version's text. about: task, its hash, numbers of the two
    versions, kind and sentence of the action, speedup (over the root) and gain (over the parent).
    """

    request: EditRequest
    child: str
    about: dict[str, Any]


def edits_of_run(folder: Path) -> Iterator[RecordedEdit]:
    """The right edits of a run. Raises: RunError where there is no such run."""
    store = Store.read(folder)
    try:
        task, tree, hardware = store.task(), store.tree(), store.hardware() or ""
    finally:
        store.close()
    for node in tree:
        if node.action is None or not node.outcome.ok:
            continue
        parent = tree[node.parent_id]
        steps = history(tree, parent.id)
        yield RecordedEdit(
            EditRequest(task, parent.source, parent.plan, parent.outcome, node.action, hardware, steps),
            node.source,
            about_edit(task.name, source_hash(task.source), tree.root, parent, node),
        )


def edited(tree: RecordedTree) -> list[int]:
    """The numbers of a recorded tree's right versions that were made from another one."""
    return [node.id for node in tree.nodes if node.action is not None and node.outcome.ok]


def edits_of_tree(tree: RecordedTree, children: Sequence[int]) -> Iterator[RecordedEdit]:
    """What some versions of a recorded tree were made by; where a text cannot be printed again, it is left out.

    children: some of `edited`, since to print a version takes a while.
    """
    for node in map(tree.nodes.__getitem__, children):
        assert node.action is not None and node.parent_id is not None
        parent, seen = tree.nodes[node.parent_id], tree.observation(node.parent_id)
        try:
            source, child = tree.version_text(parent.id), tree.version_text(node.id)
        except (RunError, CoderError, TaskError):
            continue
        yield RecordedEdit(
            EditRequest(tree.task, source, parent.plan, parent.outcome, node.action, tree.hardware, seen.history),
            child,
            about_edit(tree.name, tree.key, tree.root, parent, node),
        )


Version = TypeVar("Version", KernelNode, RecordedNode)


def about_edit(task: str, task_hash: str, root: Version, parent: Version, child: Version) -> dict[str, Any]:
    """See `RecordedEdit.about`. child: has an action."""
    assert child.action is not None
    return {
        "task": task,
        "task_hash": task_hash,
        "node": parent.id,
        "child": child.id,
        "kind": child.action.kind,
        "action": child.action.sentence,
        "speedup": speedup(child.outcome, root.outcome),
        "gain": speedup(child.outcome, parent.outcome),
    }
