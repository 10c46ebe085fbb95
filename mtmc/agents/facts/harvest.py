"""harvest: entries of knowledge from the records of runs."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from pathlib import Path

from mtmc.action import without_lines
from mtmc.agents.facts.text import task_dtype
from mtmc.errors import MtmcError
from mtmc.knowledge import LEAST_GAIN, Entry
from mtmc.outcome import speedup
from mtmc.store import Store
from mtmc.task import Task
from mtmc.tree import KernelNode, Tree

_log = logging.getLogger(__name__)

DIFF_LINES = 60
"""Lines of a diff that are kept."""


def entries_of(folder: Path) -> list[Entry]:
    """The pairs of a run whose child is right and faster by `LEAST_GAIN` at least.

    Where the run verified versions, the child has passed that: most of them were never asked, and are left out.
    Raises: RunError where there is no run.
    """
    store = Store.read(folder)
    try:
        verifies = any(gate == "verify" for _, gate in store.recorded())
        tree, task, hardware = store.tree(), store.task(), store.hardware() or ""
        passed = {hash_ for hash_, gate, _, found in store.evaluations_made() if gate == "verify" and found.ok}
    finally:
        store.close()
    return list(_entries(tree, task, hardware, passed if verifies else None))


def task_ops(task: Task) -> tuple[str, ...]:
    """Names of the operators of a task's reference, sorted, each once; none where it does not export."""
    from mtmc.rewrite.exported import export_graph

    try:
        return tuple(sorted({op.target.split(".")[1] for op in export_graph(task).ops if "." in op.target}))
    except MtmcError as error:
        _log.info("nothing is known of the operators of task %s: %s", task.name, error)
        return ()


def task_shapes(task: Task) -> str:
    """Shapes of forward's arguments at the full shapes, in words; "" where the task does not export."""
    from mtmc.rewrite.exported import export_graph

    try:
        graph = export_graph(task)
    except MtmcError:
        return ""
    return ", ".join("x".join(str(size[0]) for size in graph.values[name].shape) for name in graph.inputs)


def _entries(tree: Tree, task: Task, hardware: str, passed: set[str] | None) -> Iterator[Entry]:
    for node in tree:
        if node.action is None or not node.outcome.ok or (passed is not None and node.hash not in passed):
            continue
        parent = tree[node.parent_id]
        gain = speedup(node.outcome, parent.outcome)
        if gain is not None and gain >= LEAST_GAIN:
            yield _entry(task, hardware, parent, node, gain, "screen" if passed is None else "verify")


def _entry(task: Task, hardware: str, parent: KernelNode, child: KernelNode, gain: float, gate: str) -> Entry:
    assert child.action is not None and parent.outcome.runtime_ms is not None and child.outcome.runtime_ms is not None
    lines = difflib.unified_diff(parent.source.splitlines(), child.source.splitlines(), lineterm="", n=1)
    diff = list(lines)[2:]
    cut = [*diff[:DIFF_LINES], f"[{len(diff) - DIFF_LINES} more lines]"] if len(diff) > DIFF_LINES else diff
    return Entry(
        task=task.name,
        ops=task_ops(task),
        shapes=task_shapes(task),
        dtype=task_dtype(task) or "",
        hardware=hardware,
        kind=child.action.kind,
        params=dict(child.action.params),
        sentence=without_lines(child.action)[0],
        gain=gain,
        parent_ms=parent.outcome.runtime_ms,
        child_ms=child.outcome.runtime_ms,
        runtime_kind=child.outcome.runtime_kind or "",
        gate=gate,
        parent=parent.hash,
        child=child.hash,
        diff="\n".join(cut),
    )
