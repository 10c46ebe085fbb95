"""canonical_json: the facts of a run that every run with the same seed and deterministic parts shares, byte for byte.

Times of day, seconds, versions and paths are left out; numbers have 12 significant digits, so that another machine's
last bit of a logarithm does not count.
"""

from __future__ import annotations

import json
from typing import Any

from mtmc.action import action_to_json
from mtmc.outcome import outcome_to_json
from mtmc.search.result import SearchResult
from mtmc.store import Store
from mtmc.tree import KernelNode


def canonical_json(result: SearchResult) -> str:
    """Nodes, legal actions with priors, the search statistics, batches and trials as JSON text, one item a line.

    Raises: RunError if the run's folder is gone.
    """
    store = Store.read(result.run_dir)
    try:
        nodes = [_node(result, store, node) for node in result.tree]
        batches = [_batch(batch) for batch in store.batches()]
    finally:
        store.close()
    facts = {
        "task": result.tree.task_name,
        "best": result.tree.best.id,
        "evaluations": result.evaluations,
        "finished": result.finished,
    }
    lines = [f'"{name}": {_text(value)}' for name, value in facts.items()]
    for name, items in (("nodes", nodes), ("batches", batches)):
        lines.append(f'"{name}": [\n' + ",\n".join(_text(item) for item in items) + "\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _node(result: SearchResult, store: Store, node: KernelNode) -> dict[str, Any]:
    actions, priors = store.legal(node.id)
    return {
        "id": node.id,
        "parent": node.parent_id,
        "trial": node.trial_id,
        "repairs": node.repairs,
        "action": None if node.action is None else action_to_json(node.action),
        "hash": node.hash,
        "plan": node.plan,
        "outcome": outcome_to_json(node.outcome),
        "cost": vars(node.cost),
        "legal": [[action.key, prior] for action, prior in zip(actions, priors, strict=True)],
        "notes": result.annotations.get(node.id, {}),
    }


def _batch(batch: Any) -> dict[str, Any]:
    trials = [
        [
            row.trial.id,
            row.trial.node_id,
            row.trial.action_index,
            row.allowance,
            row.end and list(vars(row.end).values()),
        ]
        for row in batch.trials
    ]
    return {"id": batch.id, "asked": batch.asked, "trials": trials}


def _text(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {str(name): _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
