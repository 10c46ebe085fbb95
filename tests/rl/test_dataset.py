"""From a run to files and back: nothing that a policy sees is lost, and others can read it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from mtmc.action import STOP_KIND
from mtmc.agents.policies.learned.features import action_features, observation_features
from mtmc.agents.policies.learned.graphs import graph_facts, graph_from_json, graph_key
from mtmc.agents.policies.learned.vectors import matrix, names_in
from mtmc.errors import RunError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.rewrite.exported import export_graph
from mtmc.rl.dataset import concatenated, read_tables, write_dataset, write_tables
from mtmc.rl.formats import preferences, sft_examples, write_jsonl
from mtmc.rl.record import Record, record_run
from mtmc.rl.schema import COLUMNS, SPLITS, VERSION, arrow_schema, split_of
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search import SearchResult, load, search
from mtmc.task import Task, task_from_source
from mtmc.tree import source_hash
from tests.rl.recorded import TASK_TEXT, Spy, run_of


@dataclass(frozen=True)
class Recorded:
    """A run, what its policy was shown, and the run written as a data set and read again."""

    task: Task
    result: SearchResult
    spy: Spy
    record: Record
    folder: Path
    tree: RecordedTree


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    task, spy = task_from_source(TASK_TEXT, "rows"), Spy()
    result = run_of(task, folder / "run", spy)
    record = record_run(folder / "run")
    write_dataset(record, folder / "data")
    [tree] = load_trees(folder / "data")
    return Recorded(task, result, spy, record, folder, tree)


def test_versions_come_back_as_they_were(recorded: Recorded) -> None:
    assert len(recorded.tree.nodes) == len(recorded.result.tree) == 20
    for node, version in zip(recorded.tree.nodes, recorded.result.tree, strict=True):
        assert (node.version, node.plan, node.action) == (version.hash, version.plan, version.action)
        found, was = node.outcome, version.outcome
        assert (found.status, found.runtime_ms, found.metrics) == (was.status, was.runtime_ms, was.metrics)
        assert (found.diagnosis is None) == (was.diagnosis is None)
        assert recorded.tree.values[node.id] == pytest.approx(
            -4.0 if not was.ok else np.log2(recorded.result.tree.speedup(node.id) or 0)
        )
    statuses = {node.outcome.status for node in recorded.tree.nodes}
    assert statuses == {"ok", "build_error"}  # failures are kept


def test_a_policy_sees_the_same_live_and_recorded(recorded: Recorded) -> None:
    by_version = {node.version: node for node in recorded.tree.nodes}
    assert len(recorded.spy.seen) > 10
    for observation, actions in recorded.spy.seen:
        node = by_version[source_hash(observation.source)]
        again = recorded.tree.observation(node.id)
        assert node.actions == actions
        assert (again.plan, again.hardware, again.task) == (observation.plan, observation.hardware, observation.task)
        assert again.history == tuple(
            replace(step, source="", outcome=each.outcome)
            for step, each in zip(observation.history, again.history, strict=True)
        )
        assert recorded.tree.graph is not None
        graph, children = recorded.tree.graph, recorded.tree.children_of(node.id)
        assert observation_features(observation) == observation_features(again, graph)
        live = action_features(observation, actions, only=node.known)
        assert live == action_features(again, node.actions, graph, children, only=node.known)


def test_features_are_small_numbers_and_tell_actions_apart(recorded: Recorded) -> None:
    seen = [(observation_features(o), action_features(o, actions)) for o, actions in recorded.spy.seen]
    states = [state for state, _ in seen]
    assert np.isfinite(matrix(states, names_in(states))).all()
    for _, rows in seen:
        numbers = matrix(rows, names_in(rows))
        assert np.isfinite(numbers).all() and np.abs(numbers).max() < 16
        assert len(np.unique(numbers, axis=0)) == len(rows)


def test_transitions_say_where_each_action_leads(recorded: Recorded) -> None:
    rows = recorded.record.transitions
    hows = {row["how"] for row in rows}
    assert hows == {"evaluated", "transposition", "stop", "untried"}
    for row in rows:
        assert (row["child"] is not None) == (row["how"] in ("evaluated", "transposition"))
        assert (row["how"] == "stop") == (row["kind"] == STOP_KIND)
    evaluated = [row for row in rows if row["how"] == "evaluated"]
    assert sorted(row["child"] for row in evaluated) == list(range(1, 20))
    for row in evaluated:
        child, parent = (recorded.result.tree[row[name]].outcome for name in ("child", "node"))
        depth = recorded.result.tree.depth(row["node"])
        base = (
            0.6 + (child.runtime_ms < parent.runtime_ms)
            if child.ok and child.runtime_ms and parent.runtime_ms
            else -1.0
        )
        assert row["reward"] == pytest.approx(base - 0.02 * (depth + 1))


def test_transpositions_are_what_the_coder_writes(recorded: Recorded) -> None:
    tree = recorded.result.tree
    edges = [row for row in recorded.record.transitions if row["how"] == "transposition"]
    assert len(edges) >= 5
    for row in edges[:8]:
        node, child = recorded.tree.nodes[row["node"]], recorded.tree.nodes[row["child"]]
        text = _written(recorded, node.id, row["action"])
        assert source_hash(text) == child.version == tree[row["child"]].hash


def _written(recorded: Recorded, node_id: int, index: int) -> str:
    from mtmc.agents.coders.rewriter import Rewriter
    from mtmc.protocols import EditRequest

    node, tree = recorded.tree.nodes[node_id], recorded.result.tree
    version = tree[node_id]
    request = EditRequest(recorded.task, version.source, version.plan, version.outcome, node.actions[index], "H100")
    return Rewriter().edit(request).source


def test_texts_of_versions_are_printed_again_from_their_plans(recorded: Recorded) -> None:
    for version in recorded.result.tree:
        assert recorded.tree.version_text(version.id) == version.source


def test_the_files_can_be_read_without_mtmc(recorded: Recorded) -> None:
    for name, columns in COLUMNS.items():
        table = parquet.read_table(recorded.folder / "data" / f"{name}.parquet")
        assert table.column_names == list(columns)
        assert table.schema.field("task").metadata[b"description"]
        assert table.schema.metadata[b"version"] == str(VERSION).encode()
        assert pa.types.is_dictionary(table.schema.field("task").type)
    task = parquet.read_table(recorded.folder / "data" / "tasks.parquet").to_pylist()[0]
    assert task["text"] == TASK_TEXT and task["coder"] == "rewriter" and task["finished"]
    assert task["best_ms"] == min(n.outcome.runtime_ms for n in recorded.tree.nodes if n.outcome.runtime_ms)


def test_a_file_of_a_newer_version_or_of_something_else_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    tables = read_tables(recorded.folder / "data")
    newer = dict(tables["nodes"].schema.metadata) | {b"version": str(VERSION + 1).encode()}
    write_tables({**tables, "nodes": tables["nodes"].replace_schema_metadata(newer)}, tmp_path / "newer")
    with pytest.raises(RunError, match="upgrade mtmc"):
        read_tables(tmp_path / "newer")
    write_tables({**tables, "tasks": tables["tasks"].replace_schema_metadata({})}, tmp_path / "other")
    with pytest.raises(RunError, match="no file of mtmc recorded trees"):
        read_tables(tmp_path / "other")
    with pytest.raises(RunError, match="no data set"):
        read_tables(tmp_path / "nothing")


def test_of_two_trees_of_one_task_or_graph_the_first_is_kept(recorded: Recorded) -> None:
    tables = read_tables(recorded.folder / "data")
    renamed = {
        name: table.set_column(
            0, arrow_schema(name).field("task"), pa.array(["f" * 16] * len(table)).dictionary_encode()
        )
        for name, table in tables.items()
    }
    once = concatenated([tables, tables, renamed])
    assert {name: table.num_rows for name, table in once.items()} == {
        name: table.num_rows for name, table in tables.items()
    }


def test_a_split_follows_from_the_hash_alone() -> None:
    keys = [source_hash(str(number)) for number in range(2000)]
    shares = {split: sum(split_of(key) == split for key in keys) / len(keys) for split in SPLITS}
    assert shares["train"] == pytest.approx(0.8, abs=0.03)
    assert shares["validation"] == pytest.approx(0.1, abs=0.03)
    assert split_of("0123456789abcdef") == "train"


def test_only_one_split_is_read(recorded: Recorded) -> None:
    others = [split for split in SPLITS if split != recorded.tree.split]
    assert len(load_trees(recorded.folder / "data", recorded.tree.split)) == 1
    assert load_trees(recorded.folder / "data", others[0]) == []


def test_any_run_can_be_recorded(tmp_path: Path) -> None:
    search(
        FAKE_TASK,
        strategy=FakeStrategy(),
        policy=FakePolicy(),
        coder=FakeCoder(refuses=0.3, usd=0.0),
        evaluator=FakeEvaluator(),
        budget=30,
        out=tmp_path / "run",
        dumps=False,
    )
    record = record_run(tmp_path / "run")
    write_dataset(record, tmp_path / "data")
    [tree] = load_trees(tmp_path / "data")
    assert tree.graph is None and record.tasks[0]["graph_key"] is None
    assert {"no_edit", "transposition", "evaluated"} <= {row["how"] for row in record.transitions}
    assert [node.version for node in tree.nodes] == [
        node.hash for node in load(tmp_path / "run", strategy=FakeStrategy()).tree
    ]
    with pytest.raises(RunError, match="no run"):
        record_run(tmp_path)


def test_graphs_come_back_and_names_do_not_count(recorded: Recorded) -> None:
    facts = graph_facts(export_graph(recorded.task))
    assert recorded.tree.graph is not None
    assert recorded.tree.graph.to_json() == facts.to_json() == graph_from_json(facts.to_json()).to_json()
    swapped = TASK_TEXT.replace("torch.relu(x) + y", "y + torch.relu(x)").replace("cols = ", "columns = ")
    swapped = swapped.replace("cols)", "columns)").replace('"cols"', '"columns"')
    assert graph_key(graph_facts(export_graph(task_from_source(swapped, "swapped")))) == graph_key(facts)
    for old, new in (("1024", "1025"), ("relu", "sigmoid"), ("relu(x) + y", "relu(x) + x"), ("dim=-1", "dim=0")):
        other = task_from_source(TASK_TEXT.replace(old, new), "other")
        assert graph_key(graph_facts(export_graph(other))) != graph_key(facts)
    half = TASK_TEXT.replace("torch.randn(rows, cols)", "torch.randn(rows, cols).half()")
    half_facts = graph_facts(export_graph(task_from_source(half, "half")))
    assert graph_key(half_facts) == graph_key(facts)
    assert graph_key(half_facts, dtypes=True) != graph_key(facts, dtypes=True)


def test_examples_for_others_trainers(recorded: Recorded, tmp_path: Path) -> None:
    from mtmc.agents.coders.editing.reply import parse_reply
    from mtmc.agents.policies.ranking import parse_ranking

    tree = recorded.result.tree
    edits = list(sft_examples(recorded.folder / "run"))
    assert len(edits) == sum(node.outcome.ok for node in tree) - 1
    for example in edits:
        parent, child = tree[example["node"]], tree[example["child"]]
        assert (
            parse_reply(example["completion"][0]["content"], parent.source, False).source.strip()
            == child.source.strip()
        )
        assert (
            child.action is not None and f"# Optimization Type: {child.action.kind}" in example["prompt"][1]["content"]
        )
    pairs = list(preferences(recorded.folder / "run"))
    assert pairs and all(pair["margin"] >= 0.05 for pair in pairs)
    for pair in pairs:
        actions = recorded.tree.nodes[pair["node"]].actions
        chosen, rejected = (
            parse_ranking(pair[name][0]["content"], len(actions), 1, 0).order[0] for name in ("chosen", "rejected")
        )
        assert actions[chosen].sentence == pair["action"] and actions[rejected].sentence == pair["rejected_action"]
        children = recorded.tree.nodes[pair["node"]].children
        values = [recorded.tree.values[children[index]] for index in (chosen, rejected)]
        assert values[0] - values[1] == pytest.approx(pair["margin"])
    assert write_jsonl(pairs, tmp_path / "pairs.jsonl") == len(pairs)
    lines = (tmp_path / "pairs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == pairs
