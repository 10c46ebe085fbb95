"""Documents: what a command says with --json, one JSON document on stdout.

While a command runs, all else that is printed goes to stderr, what child processes print too. Every document has `command`
and `exit_status`, and one of a command that failed has `error` (the message) and `kind` (of the error).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtmc.outcome import Outcome
    from mtmc.search import SearchResult

FLAG = "--json"
LONG = ("source", "plan", "label")
"""Facts of a version that a list of versions leaves out."""


@contextmanager
def stdout_kept() -> Iterator[None]:
    """What is printed meanwhile goes to stderr."""
    if sys.stdout is not sys.__stdout__:
        with redirect_stdout(sys.stderr):
            yield
        return
    print(end="", flush=True)
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def text_of(document: Mapping[str, Any]) -> str:
    """The document as JSON. What is no number (infinite, undefined) is null; paths and other values are text."""
    return json.dumps(_plain(document), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return str(value)


def run_document(result: SearchResult) -> dict[str, Any]:
    """A run in short. runtime_ms: of one forward, ms. speedup: over the root."""
    return {
        "task": result.tree.task_name,
        "run_dir": result.run_dir,
        "hardware": result.record.settings.get("hardware"),
        "finished": result.finished,
        "cut_short": result.cut_short,
        "evaluations": result.evaluations,
        "versions": len(result.tree),
        "best": version_document(result, result.tree.best.id),
        "root": version_document(result, result.tree.root.id),
        "baselines": {name: _outcome(outcome) for name, outcome in result.baselines.items()},
    }


def version_document(result: SearchResult, node_id: int) -> dict[str, Any]:
    """A version in short."""
    node, tree = result.tree[node_id], result.tree
    action = None if node.action is None else node.action.sentence
    return {"id": node.id, "action": action, **_outcome(node.outcome), "speedup": tree.speedup(node.id)}


def tree_document(result: SearchResult) -> list[dict[str, Any]]:
    """All versions, with the names that `mtmc.export.to_networkx` gives their facts, and `id` and `parent_id`."""
    facts = result.tree.to_networkx().nodes
    return [
        {
            "id": node.id,
            "parent_id": None if node.parent_id < 0 else node.parent_id,
            **{name: value for name, value in facts[node.id].items() if name not in LONG},
        }
        for node in result.tree
    ]


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"status": outcome.status, "runtime_ms": outcome.runtime_ms, "runtime_kind": outcome.runtime_kind}
