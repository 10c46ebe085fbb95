"""tree.json: a run as node-link JSON that networkx opens, and that `from_json` turns into a RunRecord again.

The document is what `networkx.node_link_data(graph, edges="edges")` gives, plus one member "run" with what is not of a
graph's form: settings, legal actions, the strategy's notes. It is canonical (sorted names, the shortest text of each
float) and holds no wall times, so the same run gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.action import Action, action_from_json, action_to_json
from mtmc.errors import MtmcError, RunError
from mtmc.export.graphs import CHILD, DUPLICATE, METRIC_PREFIX, SCHEMA_VERSION, to_networkx
from mtmc.export.record import RunRecord, plain
from mtmc.files import write_whole
from mtmc.outcome import STATUSES, Cost, Diagnosis, Outcome, outcome_from_json, outcome_to_json
from mtmc.task.tolerance import Tolerance
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, Tree


def to_json(record: RunRecord) -> str:
    """The run as canonical JSON text, ASCII only, with a final newline.

    `Cost.seconds` is left out (a wall time). Metrics and notes that are not finite are left out, too: JSON has no word
    for them. Lists stand for tuples in the settings.

    Raises: RunError where a setting is not plain data.
    """
    import networkx as nx

    document = nx.node_link_data(to_networkx(record), edges="edges")
    document["run"] = _run_part(record)
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def write_json(record: RunRecord, path: Path) -> Path:
    """Write `to_json`. Raises: RunError where the file cannot be written."""
    return write_whole(path, to_json(record))


def from_json(path: Path | str) -> RunRecord:
    """The run that `write_json` wrote; its seconds are 0.

    Raises: RunError where the file is missing, is no tree of mtmc, is damaged, or was made by a newer version.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read a tree from {path}: {error}; pass a tree.json that mtmc wrote") from error
    graph = document.get("graph") if isinstance(document, dict) else None
    version = graph.get("schema_version") if isinstance(graph, dict) else None
    if not isinstance(version, int):
        raise RunError(f"{path} is JSON but no tree of mtmc (it has no schema_version); pass a tree.json of a run")
    if version > SCHEMA_VERSION:
        raise RunError(
            f"{path} has schema version {version}, this mtmc reads up to {SCHEMA_VERSION}: "
            "it was made by a newer version; upgrade mtmc to open it"
        )
    try:
        return _record(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, MtmcError) as error:
        raise RunError(f"{path} is damaged: {type(error).__name__}: {error}; write it again from the run") from error


def _run_part(record: RunRecord) -> dict[str, Any]:
    actions: list[dict[str, object]] = []
    index: dict[Action, int] = {}
    legal: dict[str, dict[str, list[Any]]] = {}
    for node_id in sorted(record.legal):
        row: dict[str, list[Any]] = {"actions": [], "priors": []}
        for action, prior in record.legal[node_id]:
            if action not in index:
                index[action] = len(actions)
                actions.append(action_to_json(action))
            row["actions"].append(index[action])
            row["priors"].append(float(prior))
        legal[str(node_id)] = row
    notes = {
        str(node_id): {
            name: float(value) for name, value in record.annotations[node_id].items() if math.isfinite(value)
        }
        for node_id in sorted(record.annotations)
    }
    declared = {} if record.tolerance.is_default else {"tolerance": asdict(record.tolerance)}
    return {
        **declared,
        "actions": actions,
        "annotations": notes,
        "baselines": {name: outcome_to_json(record.baselines[name]) for name in sorted(record.baselines)},
        "evaluations": list(record.evaluations),
        "legal": legal,
        "settings": plain(record.settings),
        "spent": None if record.spent is None else _cost_to_json(record.spent),
    }


def _cost_to_json(cost: Cost) -> dict[str, float]:
    return {"usd": float(cost.usd), "tokens_in": cost.tokens_in, "tokens_out": cost.tokens_out, "calls": cost.calls}


def _record(document: Mapping[str, Any]) -> RunRecord:
    tree = Tree(document["graph"]["task"])
    edges = {edge["target"]: edge for edge in document["edges"] if edge.get("relation", CHILD) == CHILD}
    for facts in document["nodes"]:
        tree.add(_node(facts, edges.get(facts["id"])))
    run = document["run"]
    actions = [action_from_json(data) for data in run["actions"]]
    return RunRecord(
        tree=tree,
        annotations={int(node_id): notes for node_id, notes in run["annotations"].items()},
        legal={
            int(node_id): tuple(zip((actions[i] for i in row["actions"]), row["priors"], strict=True))
            for node_id, row in run["legal"].items()
        },
        settings=run["settings"],
        evaluations=tuple(run["evaluations"]),
        spent=None if run["spent"] is None else Cost(**run["spent"]),
        baselines={name: outcome_from_json(data) for name, data in run.get("baselines", {}).items()},
        duplicates=[
            (edge["source"], edge["target"], _made(edge))
            for edge in document["edges"]
            if edge.get("relation") == DUPLICATE
        ],
        tolerance=Tolerance(**run.get("tolerance", {})),
    )


def _node(facts: Mapping[str, Any], edge: Mapping[str, Any] | None) -> KernelNode:
    if edge is None and facts["id"] != ROOT_ID:
        raise ValueError(f"node {facts['id']} has no edge from its parent")
    return KernelNode(
        id=facts["id"],
        parent_id=NO_PARENT if edge is None else edge["source"],
        action=None if edge is None else _action(edge),
        source=facts.get("source", ""),
        plan=facts.get("plan"),
        outcome=_outcome(facts),
        trial_id=facts.get("trial_id", -1),
        repairs=facts["repairs"],
        cost=Cost(0.0, facts["usd"], facts["tokens_in"], facts["tokens_out"], facts["calls"]),
    )


def _action(edge: Mapping[str, Any]) -> Action | None:
    return _made(edge) if "kind" in edge else None


def _made(edge: Mapping[str, Any]) -> Action:
    region = {"name": edge.get("region", ""), "first_line": edge["first_line"], "last_line": edge["last_line"]}
    return action_from_json(
        {
            "kind": edge["kind"],
            "region": region,
            "params": json.loads(edge["params"]),
            "sentence": edge.get("sentence", ""),
        }
    )


def _outcome(facts: Mapping[str, Any]) -> Outcome:
    if facts["status"] not in STATUSES:
        raise ValueError(f"unknown status {facts['status']!r}")
    diagnosis = None
    if any(name.startswith("diagnosis_") for name in facts):
        diagnosis = Diagnosis(
            stage=facts.get("diagnosis_stage", ""),
            kind=facts.get("diagnosis_kind", ""),
            message=facts.get("diagnosis_message", ""),
            line=facts.get("diagnosis_line"),
            excerpt=facts.get("diagnosis_excerpt", ""),
        )
    metrics = {name[len(METRIC_PREFIX) :]: value for name, value in facts.items() if name.startswith(METRIC_PREFIX)}
    return Outcome(
        status=facts["status"],
        runtime_ms=facts.get("runtime_ms"),
        runtime_low_ms=facts.get("runtime_low_ms"),
        runtime_high_ms=facts.get("runtime_high_ms"),
        trials=facts["runtime_trials"],
        runtime_kind=facts.get("runtime_kind"),
        metrics=metrics,
        diagnosis=diagnosis,
    )
