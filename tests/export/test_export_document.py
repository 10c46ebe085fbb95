"""tree.json: networkx opens it, from_json loads it, and equal runs give equal bytes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtmc.action import Action, Region
from mtmc.errors import RunError
from mtmc.export import SCHEMA_VERSION, RunRecord, from_json, to_json, to_networkx, write_json
from mtmc.outcome import STATUSES, Cost, Diagnosis, Outcome, RuntimeKind
from mtmc.tree import NO_PARENT, KernelNode, Tree


def test_networkx_reads_it_back_equal(record: RunRecord) -> None:
    back = nx.node_link_graph(json.loads(to_json(record)), edges="edges")
    graph = to_networkx(record)
    assert isinstance(back, nx.DiGraph)
    assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
    assert {(a, b): facts for a, b, facts in back.edges(data=True)} == {
        (a, b): facts for a, b, facts in graph.edges(data=True)
    }
    assert back.graph == graph.graph
    kinds = {(node, name): type(value) for node, facts in graph.nodes(data=True) for name, value in facts.items()}
    assert kinds == {(n, name): type(value) for n, facts in back.nodes(data=True) for name, value in facts.items()}


def timeless(record: RunRecord) -> RunRecord:
    tree = Tree(record.tree.task_name)
    for node in record.tree:
        tree.add(replace(node, cost=replace(node.cost, seconds=0.0)))
    return replace(record, tree=tree)


def test_a_run_comes_back_whole(record: RunRecord, tmp_path: Path) -> None:
    record = replace(record, spent=Cost(usd=0.5, tokens_in=10, tokens_out=20, calls=3))
    path = write_json(record, tmp_path / "tree.json")
    back = from_json(path)
    assert list(back.tree) == list(timeless(record).tree)
    assert back.tree.best.id == 7 and back.tree.task_name == "softmax_gelu"
    assert back.annotations == record.annotations
    assert back.legal == record.legal
    assert back.settings == record.settings
    assert tuple(back.evaluations) == tuple(record.evaluations)
    assert back.spent == record.spent
    assert to_json(back) == path.read_text(encoding="utf-8")


def test_equal_runs_give_equal_bytes_whatever_time_they_took(record: RunRecord) -> None:
    tree = Tree(record.tree.task_name)
    for node in record.tree:
        metrics = dict(reversed(list(node.outcome.metrics.items())))
        outcome = replace(node.outcome, metrics=metrics)
        tree.add(replace(node, outcome=outcome, cost=replace(node.cost, seconds=99.0)))
    notes = dict(reversed([(key, dict(reversed(list(row.items())))) for key, row in record.annotations.items()]))
    config = dict(reversed(list(record.settings.items())))
    other = replace(record, tree=tree, annotations=notes, settings=config)
    assert to_json(other) == to_json(record)
    assert to_json(record).isascii() and "99.0" not in to_json(other)


def test_unknown_numbers_do_not_enter(hostile: RunRecord, tmp_path: Path) -> None:
    back = from_json(write_json(hostile, tmp_path / "tree.json"))
    assert math.isnan(hostile.tree[0].outcome.metrics["error"])
    assert "error" not in back.tree[0].outcome.metrics and len(back.tree[0].outcome.metrics) == 1
    assert back.tree[2].outcome.diagnosis == hostile.tree[2].outcome.diagnosis
    assert back.tree[0].source == hostile.tree[0].source


def test_a_newer_schema_is_refused(record: RunRecord, tmp_path: Path) -> None:
    document = json.loads(to_json(record))
    document["graph"]["schema_version"] = SCHEMA_VERSION + 1
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RunError, match=r"schema version 3, this mtmc reads up to 2: .* newer version; upgrade mtmc"):
        from_json(path)


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"graph": 3}', '{"graph": {"schema_version": "1"}}', "\xff"])
def test_what_is_no_tree_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=r"tree\.json"):
        from_json(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot read a tree from .*absent\.json"):
        from_json(tmp_path / "absent.json")


def damage_status(document: dict[str, Any]) -> None:
    document["nodes"][1]["status"] = "splendid"


def damage_parent(document: dict[str, Any]) -> None:
    document["edges"][0]["source"] = 9


def damage_edges(document: dict[str, Any]) -> None:
    del document["edges"][3]


def damage_legal(document: dict[str, Any]) -> None:
    document["run"]["legal"]["0"]["actions"][0] = 77


def damage_run(document: dict[str, Any]) -> None:
    del document["run"]


@pytest.mark.parametrize("damage", [damage_status, damage_parent, damage_edges, damage_legal, damage_run])
def test_a_damaged_tree_is_refused(damage: Any, record: RunRecord, tmp_path: Path) -> None:
    document = json.loads(to_json(record))
    damage(document)
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RunError, match=r"is damaged: .* write it again"):
        from_json(path)


def test_a_file_that_cannot_be_written_leaves_nothing(record: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="choose a folder"):
        write_json(record, tmp_path / "file" / "tree.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(RunError, match=r"taken.* cannot be written"):
        write_json(record, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-6, max_value=1e6)
PARAMS = st.dictionaries(TEXTS, st.one_of(st.integers(), NUMBERS, st.booleans(), TEXTS), max_size=3)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    status = draw(st.sampled_from(STATUSES))
    metrics = draw(st.dictionaries(TEXTS, NUMBERS, max_size=3))
    if status != "ok":
        line = draw(st.one_of(st.none(), st.integers(1, 500)))
        diagnosis = Diagnosis("check", draw(TEXTS), draw(TEXTS), line, draw(TEXTS))
        return Outcome(status, metrics=metrics, diagnosis=draw(st.one_of(st.none(), st.just(diagnosis))))
    low, high = draw(st.one_of(st.just((None, None)), st.tuples(POSITIVE, POSITIVE)))
    kind: RuntimeKind = draw(st.sampled_from(get_args(RuntimeKind)))
    return Outcome("ok", draw(POSITIVE), low, high, draw(st.integers(0, 99)), kind, metrics)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    region = Region(draw(TEXTS), draw(st.integers(1, 99)), draw(st.integers(1, 99)))
    return Action(draw(TEXTS.filter(bool)), region, tuple(sorted(draw(PARAMS).items())), draw(TEXTS))


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    tree = Tree(draw(TEXTS.filter(bool)))
    tree.add(KernelNode(0, NO_PARENT, None, draw(TEXTS), None, draw(outcomes())))
    for node_id in range(1, draw(st.integers(1, 6))):
        plan = draw(st.one_of(st.none(), TEXTS.filter(bool)))
        cost = Cost(0.0, draw(POSITIVE), draw(st.integers(0, 9**9)), draw(st.integers(0, 9)), draw(st.integers(0, 9)))
        trial, repairs = draw(st.integers(0, 99)), draw(st.integers(0, 3))
        parent = draw(st.integers(0, node_id - 1))
        node = KernelNode(node_id, parent, draw(actions()), draw(TEXTS), plan, draw(outcomes()), trial, repairs, cost)
        tree.add(node)
    ids = st.integers(0, len(tree) - 1)
    notes = draw(st.dictionaries(ids, st.dictionaries(TEXTS, NUMBERS, max_size=3), max_size=3))
    legal = draw(st.dictionaries(ids, st.lists(st.tuples(actions(), POSITIVE), max_size=3).map(tuple), max_size=3))
    return RunRecord(tree, notes, legal, {"seed": 1}, tuple(draw(st.lists(ids, max_size=5))))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(run=records())
def test_any_run_survives_json(run: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("json") / "tree.json"
    back = from_json(write_json(run, path))
    assert list(back.tree) == list(run.tree)
    assert (back.annotations, back.legal, tuple(back.evaluations)) == (run.annotations, run.legal, run.evaluations)
    assert to_json(back) == to_json(run)
