"""A run as a networkx graph, in memory and as GraphML.

Every attribute is a typed scalar (int, float, str, bool). What is not known is absent: there is no None, no sentinel
and no number that is not finite, so that a table of the graph's nodes has gaps where facts are missing, not lies.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.action import Action, Scalar
from mtmc.export.record import (
    RunRecord,
    action_prior,
    best_path,
    depths,
    edge_prior,
    flat_settings,
    second_parents,
    speedup_kind,
)
from mtmc.export.text import clean, kind_of, result_of
from mtmc.files import write_whole
from mtmc.outcome import Outcome
from mtmc.tree import NO_PARENT, KernelNode

if TYPE_CHECKING:
    import networkx as nx

CHILD, DUPLICATE = "child", "duplicate"
"""What an edge says: this version was made from that one; an edit of that one gave this version again."""

SCHEMA_VERSION = 2
"""Of the graph's attributes and of tree.json. It grows when a reader of the old form would misread the new one."""

METRIC_PREFIX = "metric_"


def to_networkx(record: RunRecord) -> nx.DiGraph:
    """The tree as a directed graph from parents to children, node ids as in the tree, and with second parents.

    Nodes: label, kind, sentence, region, status, runtime_ms, runtime_low_ms, runtime_high_ms, runtime_trials,
        runtime_kind, speedup, speedup_kind, depth, best, on_best_path, source, source_hash, plan, trial_id, repairs,
        usd, tokens, tokens_in, tokens_out, calls, metric_NAME for each metric, diagnosis_stage, diagnosis_kind,
        diagnosis_message, diagnosis_line, diagnosis_excerpt, visits (int), value, prior and whatever else the strategy
        notes (float, in the strategy's own words, "note_NAME").
    Edges: relation, key, kind, sentence, region, first_line, last_line, params (JSON text), prior, visits (int), value,
        on_best_path. The relation is "child" for the tree itself. It is "duplicate" where an edit of one version gave
        another that was there already; such an edge has no visits and no value, and may lead back to an ancestor.
    Graph: task, schema_version, nodes, evaluations, best, best_speedup, and each setting by its dotted name (hardware,
        seed, strategy, ...).

    Raises: RunError where a setting is not plain data.
    """
    import networkx as nx

    tree = record.tree
    path, depth = set(best_path(tree)), depths(tree)
    graph = nx.DiGraph(**_known(_graph_facts(record)))
    for node in tree:
        facts = {**_node_facts(record, node), "depth": depth[node.id], "on_best_path": node.id in path}
        graph.add_node(node.id, **_known(facts))
    for node in tree:
        if node.parent_id != NO_PARENT:
            facts = {**_edge_facts(record, node), "on_best_path": node.id in path}
            graph.add_edge(node.parent_id, node.id, **_known(facts))
    for (parent, child), action in second_parents(record).items():
        facts = {"relation": DUPLICATE, **_action_facts(action), "prior": action_prior(record, parent, action)}
        graph.add_edge(parent, child, **_known({**facts, "on_best_path": False}))
    return graph


def to_graphml(record: RunRecord) -> str:
    """The graph as GraphML text with typed keys.

    XML cannot hold control characters: where a text has some (a crashed kernel's output), replacement characters stand
    in their place, and all line ends are "\\n". tree.json holds the texts exactly.

    Raises: RunError where a setting is not plain data.
    """
    import networkx as nx

    graph = to_networkx(record)
    graph.graph.update(_cleaned(graph.graph))
    for _, facts in graph.nodes(data=True):
        facts.update(_cleaned(facts))
    for _, _, facts in graph.edges(data=True):
        facts.update(_cleaned(facts))
    buffer = io.BytesIO()
    # Not write_graphml: that one writes other bytes where lxml happens to be installed.
    nx.write_graphml_xml(graph, buffer)
    return buffer.getvalue().decode()


def write_graphml(record: RunRecord, path: Path) -> Path:
    """Write `to_graphml`; read it with `networkx.read_graphml(path, node_type=int)`. Raises: RunError."""
    return write_whole(path, to_graphml(record))


def _known(facts: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    return {
        name: value
        for name, value in facts.items()
        if value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))
    }


def _cleaned(facts: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {clean(name): clean(value) if isinstance(value, str) else value for name, value in facts.items()}


def _graph_facts(record: RunRecord) -> dict[str, Scalar | None]:
    tree = record.tree
    return {
        **flat_settings(record.settings),
        "task": tree.task_name,
        "schema_version": SCHEMA_VERSION,
        "nodes": len(tree),
        "evaluations": len(record.evaluations),
        "best": tree.best.id,
        "best_speedup": tree.speedup(tree.best.id),
        "best_speedup_kind": speedup_kind(tree, tree.best.id),
    }


def _node_facts(record: RunRecord, node: KernelNode) -> dict[str, Scalar | None]:
    tree, action, cost = record.tree, node.action, node.cost
    return {
        "label": f"#{node.id} {kind_of(node)}: {result_of(tree, node.id)}",
        "kind": action.kind if action else None,
        "sentence": action.sentence if action else None,
        "region": action.region.name if action else None,
        "speedup": tree.speedup(node.id),
        "speedup_kind": speedup_kind(tree, node.id),
        "best": node.id == tree.best.id,
        "source": node.source,
        "source_hash": node.hash,
        "plan": node.plan,
        "trial_id": node.trial_id if node.trial_id >= 0 else None,
        "repairs": node.repairs,
        "usd": float(cost.usd),
        "tokens": cost.tokens_in + cost.tokens_out,
        "tokens_in": cost.tokens_in,
        "tokens_out": cost.tokens_out,
        "calls": cost.calls,
        **_outcome_facts(node.outcome),
        **dict(_note_facts(record.annotations.get(node.id, {}))),
    }


def _outcome_facts(outcome: Outcome) -> dict[str, Scalar | None]:
    facts: dict[str, Scalar | None] = {
        "status": outcome.status,
        "runtime_ms": outcome.runtime_ms,
        "runtime_low_ms": outcome.runtime_low_ms,
        "runtime_high_ms": outcome.runtime_high_ms,
        "runtime_trials": outcome.trials,
        "runtime_kind": outcome.runtime_kind,
    }
    facts.update({METRIC_PREFIX + name: float(outcome.metrics[name]) for name in sorted(outcome.metrics)})
    if outcome.diagnosis:
        diagnosis = outcome.diagnosis
        facts["diagnosis_stage"] = diagnosis.stage
        facts["diagnosis_kind"] = diagnosis.kind
        facts["diagnosis_message"] = diagnosis.message
        facts["diagnosis_line"] = diagnosis.line
        facts["diagnosis_excerpt"] = diagnosis.excerpt
    return facts


def _note_facts(notes: Mapping[str, float]) -> Iterator[tuple[str, Scalar]]:
    for name in sorted(notes):
        if not math.isfinite(notes[name]):
            continue
        if name == "visits":
            yield name, int(notes[name])
        elif name in ("value", "prior"):
            yield name, float(notes[name])
        else:
            yield f"note_{name}", float(notes[name])


def _edge_facts(record: RunRecord, node: KernelNode) -> dict[str, Scalar | None]:
    if node.action is None:
        return {"relation": CHILD}
    notes = dict(_note_facts(record.annotations.get(node.id, {})))
    searched: dict[str, Scalar | None] = {name: notes[name] for name in ("visits", "value") if name in notes}
    return {"relation": CHILD, **_action_facts(node.action), "prior": edge_prior(record, node), **searched}


def _action_facts(action: Action) -> dict[str, Scalar | None]:
    return {
        "key": action.key,
        "kind": action.kind,
        "sentence": action.sentence,
        "region": action.region.name,
        "first_line": action.region.first_line,
        "last_line": action.region.last_line,
        "params": json.dumps(dict(action.params), sort_keys=True),
    }
