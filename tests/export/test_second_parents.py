"""Edges of the dumps: what the search knows of them, and second parents; what a notebook shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

from mtmc.errors import RunError
from mtmc.export import RunRecord, from_json, to_dot, to_json, to_mermaid, to_networkx
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import SearchResult, load, search
from mtmc.store import Store


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A search whose edits commute, so that some versions are made twice."""
    out = tmp_path_factory.mktemp("runs") / "a"
    parts = {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": FakeEvaluator()}
    return search(FAKE_TASK, **parts, budget=60, dumps=False, out=out)  # type: ignore[arg-type]


def test_edges_carry_visits_value_and_prior(result: SearchResult) -> None:
    graph = result.tree.to_networkx()
    for node in result.tree:
        if node.action is not None:
            edge, notes = graph.edges[node.parent_id, node.id], result.annotations[node.id]
            assert (edge["relation"], edge["visits"], edge["value"]) == ("child", notes["visits"], notes["value"])
            assert isinstance(edge["visits"], int) and 0 < edge["prior"] < 1


def test_second_parents_are_edges_of_another_kind(result: SearchResult) -> None:
    graph = result.tree.to_networkx()
    second = [(a, b) for a, b, relation in graph.edges(data="relation") if relation == "duplicate"]
    assert second
    for parent, child in second:
        edge = graph.edges[parent, child]
        assert result.tree[child].parent_id != parent and "visits" not in edge and not edge["on_best_path"]
        keys = {action.key: prior for action, prior in result.record.legal[parent]}
        assert edge["prior"] == keys[edge["key"]]
    store = Store.read(result.run_dir)
    ends = [(row.trial.node_id, row.end) for batch in store.batches() for row in batch.trials]
    store.close()
    led = {(node_id, end.child_id) for node_id, end in ends if end is not None and end.kind == "duplicate"}
    assert set(second) == {(a, b) for a, b in led if a != b and b is not None and result.tree[b].parent_id != a}
    tree = graph.edge_subgraph([(a, b) for a, b, relation in graph.edges(data="relation") if relation == "child"])
    assert nx.is_arborescence(tree) and len(tree) == len(result.tree)
    assert all(f"{a} -> {b} [style=dashed" in to_dot(result.record) for a, b in second)
    assert to_mermaid(result.record).count("-.->") == len(second)


def test_they_come_back_from_json_and_old_dumps_stay_readable(result: SearchResult, tmp_path: Path) -> None:
    text = to_json(result.record)
    (tmp_path / "tree.json").write_text(text)
    back = from_json(tmp_path / "tree.json")
    assert to_json(back) == text and back.tree.best.id == result.tree.best.id
    assert to_json(load(result.run_dir).record) == text
    document = json.loads(text)
    document["graph"]["schema_version"] = 1
    document["edges"] = [edge for edge in document["edges"] if edge.pop("relation") == "child"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    old = from_json(tmp_path / "old.json")
    assert [node.parent_id for node in old.tree] == [node.parent_id for node in result.tree] and old.duplicates == []


def test_an_edit_that_changed_nothing_and_one_within_the_tree_are_no_second_parents(record: RunRecord) -> None:
    action = record.tree[1].action
    assert action is not None
    edges = set(to_networkx(record).edges)
    made = replace(record, duplicates=[(1, 1, action), (0, 1, action), (2, 1, action), (2, 1, action)])
    assert set(to_networkx(made).edges) - edges == {(2, 1)}
    with pytest.raises(RunError, match="duplicates"):
        replace(record, duplicates=[(0, 99, action)])


def test_a_notebook_shows_the_result_and_its_tree(result: SearchResult, hostile: RunRecord) -> None:
    from mtmc.export.notebook import SHOWN, result_html, tree_html

    shown = result._repr_html_()
    assert f"version {result.best.node_id}" in shown and "60 evaluations" in shown and "estimated" in shown
    tree = result.tree._repr_html_()
    assert tree in shown and tree.count("<span") == len(result.tree) < SHOWN
    assert "<script" not in result_html(hostile.tree, 1, "<script>") + tree_html(hostile.tree)
