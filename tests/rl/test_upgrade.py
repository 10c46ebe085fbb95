"""Recorded trees of an older version of the format are read in today's words, and nothing else of them changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.rewrite.plan import plan_from_json
from mtmc.rl import schema, upgrade
from mtmc.rl.dataset import read_tables, table_of, write_tables
from mtmc.rl.schema import COLUMNS, VERSION
from mtmc.rl.trees import load_trees
from mtmc.rl.upgrade import RENAMED, Renamed

TREES = Path(__file__).parents[2] / "results" / "trees_h200"
STAGES = (
    '[{"family":"pointwise","ops":["add"],"schedule":{"block":64,"cache":"let go"}},'
    '{"family":"torch","ops":["sum"],"schedule":{}}]'
)
PLANS = (f'{{"captured":true,"stages":{STAGES}}}', STAGES, None)
ACTIONS = (
    ("reorder", {"cache": "let go", "block": 64}, "let go of x"),
    ("capture", {"cache": 1}, "a"),
    ("stop", {}, "b"),
)
SECOND = Renamed(
    kinds={"capture": "cuda_graph"},
    stage={"family": "template"},
    plan={"captured": "cuda_graph"},
    settings={"cache": "eviction_policy"},
    values={("cache", "let go"): "evict_first"},
    sentences={"let go": "evict"},
)
THIRD = Renamed(kinds={"cuda_graph": "graph"}, values={("eviction_policy", "evict_first"): "first"})


def row(table: str, **known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS[table]), "task": "t", **known}


def written(folder: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set in old words."""
    rows = {
        "tasks": [row("tasks", name="t")],
        "nodes": [row("nodes", node=at, plan=plan) for at, plan in enumerate(PLANS)],
        "transitions": [
            row("transitions", node=0, action=at, kind=kind, params=json.dumps(params), sentence=sentence)
            for at, (kind, params, sentence) in enumerate(ACTIONS)
        ],
    }
    with monkeypatch.context() as patched:
        patched.setattr(schema, "VERSION", version)
        write_tables({name: table_of(name, each) for name, each in rows.items()}, folder)
    return folder


def test_every_version_says_what_the_next_one_calls_otherwise() -> None:
    assert sorted(RENAMED) == list(range(1, VERSION))


def test_words_are_translated_version_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, 1, monkeypatch)
    monkeypatch.setattr(upgrade, "RENAMED", {2: THIRD, 1: SECOND})
    tables = {name: table.to_pylist() for name, table in read_tables(folder).items()}
    plans = [each["plan"] for each in tables["nodes"]]
    block = {"block": 64, "eviction_policy": "first"}
    stages = [
        {"template": "pointwise", "ops": ["add"], "schedule": block},
        {"template": "torch", "ops": ["sum"], "schedule": {}},
    ]
    assert plans[2] is None and json.loads(plans[1]) == stages
    assert json.loads(plans[0]) == {"cuda_graph": True, "stages": stages}
    assert plans[1] == json.dumps(stages, sort_keys=True, separators=(",", ":")), "as a plan writes itself"
    assert [each["kind"] for each in tables["transitions"]] == ["reorder", "graph", "stop"]
    assert [json.loads(each["params"]) for each in tables["transitions"]] == [block, {"eviction_policy": 1}, {}]
    assert [each["sentence"] for each in tables["transitions"]] == ["evict of x", "a", "b"]


def test_files_of_today_s_version_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, 2, monkeypatch)
    monkeypatch.setattr("mtmc.rl.dataset.VERSION", 2)
    monkeypatch.setattr(upgrade, "RENAMED", {1: SECOND})
    assert [each["kind"] for each in read_tables(folder)["transitions"].to_pylist()] == ["reorder", "capture", "stop"]


@pytest.mark.skipif(not (TREES / "nodes.parquet").is_file(), reason="the recorded trees are not in this package")
def test_the_trees_in_the_repository_can_be_read() -> None:
    trees = load_trees(TREES, "validation")
    assert len(trees) == 30
    for tree in trees[:3]:
        for node in tree.nodes:
            assert node.plan is None or plan_from_json(node.plan).to_json() == node.plan
    assert trees[0].version_text(len(trees[0].nodes) - 1)
