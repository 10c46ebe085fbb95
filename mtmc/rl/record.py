"""record: a run's folder -> the rows of a data set. Any run can be recorded, whoever made it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtmc.action import STOP_KIND, Action, without_lines
from mtmc.errors import RunError, TaskError
from mtmc.outcome import Outcome, speedup
from mtmc.protocols import Coder
from mtmc.reward import shaped_reward
from mtmc.rl.rewards import log_gain
from mtmc.rl.schema import METRICS, How, split_of
from mtmc.rl.transpositions import Edge, transpositions
from mtmc.store import Store
from mtmc.task import Task
from mtmc.tree import NO_PARENT, KernelNode, Tree, source_hash

_log = logging.getLogger(__name__)

Rows = list[dict[str, Any]]
MESSAGE = 200
"""Characters of a failure's reason that are kept."""


@dataclass
class Record:
    """The rows of one or several trees, by table."""

    tasks: Rows = field(default_factory=list)
    nodes: Rows = field(default_factory=list)
    transitions: Rows = field(default_factory=list)

    @property
    def tables(self) -> dict[str, Rows]:
        """Rows by name of the table."""
        return {"tasks": self.tasks, "nodes": self.nodes, "transitions": self.transitions}


def record_run(folder: Path, coder: Coder | None = None, store: Store | None = None) -> Record:
    """All that a data set keeps of a run.

    coder: finds actions that were not tried but lead to a known version; by default the rewriter where it made the run,
    else none is looked for. store: the run's store, where it is open already.

    Raises: RunError where there is no such run, or it has no root yet.
    """
    opened = Store.read(folder) if store is None else store
    try:
        tree = opened.tree()
        if len(tree) == 0:
            raise RunError(f"the run {folder} has no root yet: resume it first")
        return _record(opened, tree, coder or _coder_of(opened))
    finally:
        if store is None:
            opened.close()


def _coder_of(store: Store) -> Coder | None:
    from mtmc.agents.coders.rewriter import Rewriter

    return Rewriter() if store.settings()["coder"].get("name") == "rewriter" else None


def _record(store: Store, tree: Tree, coder: Coder | None) -> Record:
    task, settings, hardware = store.task(), store.settings(), store.hardware() or ""
    key = source_hash(task.source)
    legal = {node.id: store.legal(node.id)[0] for node in tree}
    edges = _tried(store)
    free: dict[Edge, int] = {}
    if coder is not None:
        free = transpositions(task, tree, legal, coder, hardware, edges)
    indices = {child: index for (_, index), (how, child) in edges.items() if how == "evaluated" and child is not None}
    return Record(
        tasks=[_task_row(task, settings, tree, store)],
        nodes=[_node_row(key, tree, node, indices.get(node.id)) for node in tree],
        transitions=[
            _transition_row(key, tree, node, index, action, _way((node.id, index), action, edges, free))
            for node in tree
            for index, action in enumerate(legal[node.id])
        ],
    )


Way = tuple[How, int | None]
"""How an action's end is known, and the version it leads to."""


def _tried(store: Store) -> dict[Edge, Way]:
    """What came of each edge that was tried; of several trials the first that made a version counts."""
    tried: dict[Edge, Way] = {}
    words: dict[str, How] = {"node": "evaluated", "duplicate": "transposition", "coder_error": "no_edit"}
    for batch in store.batches():
        for row in batch.trials:
            if row.end is None:
                continue
            edge = (row.trial.node_id, row.trial.action_index)
            if edge not in tried or tried[edge][1] is None:
                tried[edge] = (words[row.end.kind], row.end.child_id)
    return tried


def _way(edge: Edge, action: Action, tried: Mapping[Edge, Way], free: Mapping[Edge, int]) -> Way:
    if action.kind == STOP_KIND:
        return "stop", None
    if edge in tried:
        return tried[edge]
    return ("transposition", free[edge]) if edge in free else ("untried", None)


def _task_row(task: Task, settings: Mapping[str, Any], tree: Tree, store: Store) -> dict[str, Any]:
    key = source_hash(task.source)
    rewritten = _name(settings["coder"]) == "rewriter"  # only its plans are over the exported graph
    graph, graph_key_ = _graph_of(task, {node.plan for node in tree if node.plan} if rewritten else ())
    root, best = tree.root, tree.best
    finished = [kind for _, kind, _ in store.events()][-1:] == ["finish"]
    return {
        "task": key,
        "name": task.name,
        "split": split_of(key),
        "text": task.source,
        "graph": graph,
        "graph_key": graph_key_,
        "hardware": store.hardware(),
        "evaluator": _name(settings["evaluator"]),
        "coder": _name(settings["coder"]),
        "versions": json.dumps(settings.get("versions", {}), sort_keys=True),
        "seed": settings["seed"],
        "finished": finished,
        "evaluations": store.evaluations(),
        "root_ms": root.outcome.runtime_ms,
        "best_ms": best.outcome.runtime_ms,
        "best_node": best.id,
    }


def _graph_of(task: Task, plans: Collection[str]) -> tuple[str | None, str | None]:
    """The graph with what the rules of `plans` make of it, and its key."""
    from mtmc.agents.policies.learned.graphs import graph_key, with_rules
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import plan_from_json

    try:
        facts = with_rules(export_graph(task), {plan_from_json(plan).algebra for plan in plans})
    except TaskError as error:
        _log.info("task %s is recorded without its graph: %s", task.name, error)
        return None, None
    return facts.to_json(), graph_key(facts)


def _name(part: Mapping[str, Any]) -> str:
    return str(part.get("name") or part.get("object"))


def _node_row(task: str, tree: Tree, node: KernelNode, action_index: int | None) -> dict[str, Any]:
    outcome, diagnosis = node.outcome, node.outcome.diagnosis
    return {
        "task": task,
        "node": node.id,
        "parent": None if node.parent_id == NO_PARENT else node.parent_id,
        "action": action_index,
        "depth": tree.depth(node.id),
        "version": node.hash,
        "plan": node.plan,
        "status": outcome.status,
        "runtime_ms": outcome.runtime_ms,
        "runtime_low_ms": outcome.runtime_low_ms,
        "runtime_high_ms": outcome.runtime_high_ms,
        "runtime_kind": outcome.runtime_kind,
        "failure_stage": None if diagnosis is None else diagnosis.stage,
        "failure_kind": None if diagnosis is None else diagnosis.kind,
        "failure_message": None if diagnosis is None else diagnosis.message[:MESSAGE],
        **{f"metric_{name}": outcome.metrics.get(name) for name in METRICS},
    }


def _transition_row(task: str, tree: Tree, node: KernelNode, index: int, action: Action, way: Way) -> dict[str, Any]:
    how, child = way
    stem, told = without_lines(action)
    reward = gain = None
    if child is not None:
        outcome = tree[child].outcome
        reward = shaped_reward(outcome, node.outcome, tree.depth(node.id) + 1)
        gain = _gain(outcome, node.outcome)
    return {
        "task": task,
        "node": node.id,
        "action": index,
        "kind": action.kind,
        "region": action.region.name,
        "params": json.dumps(dict(action.params), sort_keys=True, separators=(",", ":")),
        "sentence": stem,
        "first_line": action.region.first_line,
        "last_line": action.region.last_line,
        "lines_told": told,
        "how": how,
        "child": child,
        "reward": reward,
        "log_gain": gain,
    }


def _gain(outcome: Outcome, previous: Outcome) -> float | None:
    return None if speedup(outcome, previous) is None else log_gain(outcome, previous)


def merged(records: Sequence[Record]) -> Record:
    """Several records as one, in this order."""
    whole = Record()
    for record in records:
        for name, rows in record.tables.items():
            whole.tables[name].extend(rows)
    return whole
