"""networkx graphs, GraphML, DOT and Mermaid."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from mtmc.errors import RunError
from mtmc.export import RunRecord, to_dot, to_graphml, to_mermaid, to_networkx, write_graphml
from mtmc.outcome import Outcome
from mtmc.tree import KernelNode, Tree, source_hash


def test_every_attribute_is_a_scalar_of_one_type_by_name(record: RunRecord) -> None:
    graph = to_networkx(record)
    for rows in ([facts for _, facts in graph.nodes(data=True)], [facts for _, _, facts in graph.edges(data=True)]):
        types: dict[str, set[type]] = {}
        for facts in rows:
            for name, value in facts.items():
                types.setdefault(name, set()).add(type(value))
        assert all(len(kinds) == 1 and kinds <= {int, float, str, bool} for kinds in types.values()), types
    assert {type(value) for value in graph.graph.values()} <= {int, float, str, bool}


def test_facts_of_the_best_version(record: RunRecord) -> None:
    facts = to_networkx(record).nodes[7]
    expected: dict[str, Any] = {
        "label": "#7 vectorize: 3.20x estimated",
        "kind": "vectorize",
        "sentence": "vectorize gelu_softmax, lines 8-19, with num_warps=8",
        "region": "gelu_softmax",
        "status": "ok",
        "runtime_ms": 0.6,
        "runtime_kind": "estimated",
        "speedup_kind": "estimated",
        "depth": 3,
        "best": True,
        "on_best_path": True,
        "metric_kernels": 2.0,
        "metric_registers": 40.0,
        "visits": 3,
        "value": 0.875,
        "prior": 0.125,
        "repairs": 0,
        "tokens": 1300,
        "usd": 0.007,
        "trial_id": 6,
    }
    assert {name: facts[name] for name in expected} == expected
    assert facts["speedup"] == pytest.approx(3.2)
    assert facts["source_hash"] == source_hash(record.tree[7].source)


def test_what_is_not_known_is_absent(record: RunRecord) -> None:
    nodes = to_networkx(record).nodes
    assert {"kind", "sentence", "region", "trial_id"}.isdisjoint(nodes[0])
    assert {"runtime_ms", "runtime_kind", "speedup", "speedup_kind"}.isdisjoint(nodes[3])
    assert nodes[3]["diagnosis_line"] == 12 and "diagnosis_line" not in nodes[9]
    assert "plan" not in nodes[2] and nodes[3]["plan"] == '{"stages": 3}'
    assert {name for name in nodes[7] if name.startswith("diagnosis_")} == set()


def test_edges_carry_the_action_and_its_prior(record: RunRecord) -> None:
    graph = to_networkx(record)
    assert len(graph.edges) == 10 and nx.is_arborescence(graph)
    edge = graph.edges[0, 1]
    assert edge["key"] == "lower(gelu;block=1024)" and edge["prior"] == 0.5 and edge["on_best_path"] is True
    assert json.loads(edge["params"]) == {"block": 1024}
    assert (edge["first_line"], edge["last_line"]) == (13, 13)
    without = to_networkx(replace(record, legal={}))
    assert without.edges[0, 1]["prior"] == 0.5  # what the strategy notes of node 1: 1 / (1 + 1)
    assert "prior" not in to_networkx(replace(record, legal={}, annotations={})).edges[0, 1]


def test_graph_attributes(record: RunRecord) -> None:
    facts = to_networkx(record).graph
    assert facts["task"] == "softmax_gelu" and facts["schema_version"] == 2
    assert facts["seed"] == 7 and facts["hardware"] == "H100" and facts["strategy.name"] == "mcts"
    assert facts["best"] == 7 and facts["nodes"] == 11 and facts["evaluations"] == 10
    assert facts["targets"] == '["sm_80", "sm_90"]' and "budget.seconds" not in facts


def test_graphml_reads_back_equal_and_typed(record: RunRecord, tmp_path: Path) -> None:
    graph = to_networkx(record)
    back = nx.read_graphml(write_graphml(record, tmp_path / "tree.graphml"), node_type=int)
    # The one text with control characters, which XML cannot hold.
    assert graph.nodes[9]["diagnosis_excerpt"] == "\x1b[31mstill running\x1b[0m"
    graph.nodes[9]["diagnosis_excerpt"] = "\ufffd[31mstill running\ufffd[0m"
    assert typed(dict(back.nodes(data=True))) == typed(dict(graph.nodes(data=True)))
    assert typed({(a, b): facts for a, b, facts in back.edges(data=True)}) == typed(
        {(a, b): facts for a, b, facts in graph.edges(data=True)}
    )
    facts = {name: value for name, value in back.graph.items() if name not in ("node_default", "edge_default")}
    assert typed({0: facts}) == typed({0: graph.graph})


def typed(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, tuple[type, Any]]]:
    return {key: {name: (type(value), value) for name, value in facts.items()} for key, facts in rows.items()}


def test_graphml_of_hostile_texts_is_well_formed(hostile: RunRecord, tmp_path: Path) -> None:
    back = nx.read_graphml(write_graphml(hostile, tmp_path / "tree.graphml"), node_type=int)
    assert back.nodes[0]["source"] == hostile.tree[0].source.replace("\r\n", "\n")
    assert "metric_error" not in back.nodes[0]  # it is not a number
    assert back.nodes[2]["diagnosis_message"].endswith("\ufffd[31m \ufffd \u2028 \ufffd")
    assert to_graphml(hostile) == to_graphml(hostile)


def test_notes_that_are_not_finite_are_left_out(record: RunRecord) -> None:
    notes = {1: {"visits": float("nan"), "value": float("-inf"), "entropy": 0.5}}
    facts = to_networkx(replace(record, annotations=notes)).nodes[1]
    assert {"visits", "value"}.isdisjoint(facts) and facts["note_entropy"] == 0.5


def test_a_record_names_only_nodes_that_exist(record: RunRecord) -> None:
    with pytest.raises(RunError, match="evaluations names node 99, but the tree has nodes 0 to 10"):
        replace(record, evaluations=(1, 99))
    with pytest.raises(RunError, match="annotations names node -1"):
        replace(record, annotations={-1: {}})
    with pytest.raises(RunError, match="evaluate the root first"):
        RunRecord(Tree("empty"))


def test_settings_that_are_not_plain_data_are_refused(record: RunRecord) -> None:
    with pytest.raises(RunError, match="type object cannot be dumped"):
        to_networkx(replace(record, settings={"a": {"b": object()}}))
    graph = to_networkx(replace(record, settings={"folder": Path("runs/1"), "limit": float("inf")}))
    assert graph.graph["folder"] == "runs/1" and graph.graph["limit"] == "inf"


def test_a_mix_of_measured_and_estimated_is_called_so() -> None:
    tree = Tree("toy")
    tree.add(KernelNode(0, -1, None, "a", None, Outcome("ok", 2.0, runtime_kind="measured")))
    tree.add(KernelNode(1, 0, None, "b", None, Outcome("ok", 1.0, runtime_kind="estimated")))
    facts = to_networkx(RunRecord(tree)).nodes
    assert facts[0]["speedup_kind"] == "measured" and facts[1]["speedup_kind"] == "mixed"


def test_dot_highlights_the_best_path_and_labels_estimates(record: RunRecord) -> None:
    lines = to_dot(record).splitlines()
    assert lines[0] == 'digraph "softmax_gelu" {' and lines[-1] == "}"
    assert sum("->" in line for line in lines) == 10
    assert [line.strip() for line in lines if "->" in line and "penwidth" in line] == [
        '0 -> 1 [color="#e0a100", penwidth=3];',
        '1 -> 4 [color="#e0a100", penwidth=3];',
        '4 -> 7 [color="#e0a100", penwidth=3];',
    ]
    assert any('label="#7 vectorize gelu_softmax\\n3.20x estimated"' in line for line in lines)
    assert any('label="#9 split gelu_softmax\\ntimeout"' in line for line in lines)


def test_dot_of_hostile_texts_keeps_its_strings_closed(hostile: RunRecord) -> None:
    text = to_dot(hostile)
    without = re.sub(r'"(?:[^"\\\n]|\\.)*"', "S", text)
    assert '"' not in without and "<" not in without and "script" not in without
    assert without.splitlines()[4].strip() == "0 [label=S, tooltip=S, fillcolor=S, color=S, penwidth=3];"


def test_mermaid_shows_the_best_path_first(record: RunRecord) -> None:
    text = to_mermaid(record)
    assert text.startswith("flowchart LR\n") and text.count("-->") == 10
    assert '  n7["#35;7 vectorize gelu_softmax<br/>3.20x estimated"]' in text
    assert "linkStyle 0,3,6 stroke:#e0a100" in text and "not drawn" not in text
    short = to_mermaid(record, limit=5)
    drawn = {int(number) for number in re.findall(r"^  n(\d+)\[", short, re.MULTILINE)}
    assert drawn == {0, 1, 4, 7, 8}  # the path to 7, then 8, which is as fast
    assert "6 more versions are not drawn" in short


def test_mermaid_labels_hold_no_syntax(hostile: RunRecord) -> None:
    labels = re.findall(r'\["(.*)"\]', to_mermaid(hostile))
    assert len(labels) == 3
    for label in labels:
        assert re.fullmatch(r"(?:[\w .,:/-]|#\d+;)*<br/>(?:[\w .,:/-]|#\d+;)*", label), label
