"""The benchmark of strategies on recorded trees, from end to end on two small ones."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import strategy_replays
from benchmarks.strategy_replays import evaluations
from mtmc.rl.replays import replay_search
from mtmc.rl.trees import RecordedTree
from mtmc.search.strategies import STRATEGIES, BestFirst, Greedy
from tests.rl.recorded import hand_tree


def priors(tree: RecordedTree) -> list[list[float]]:
    return [[1.0 / max(1, len(node.actions))] * len(node.actions) for node in tree.nodes]


def test_evaluations_are_means_over_the_seeds() -> None:
    tree = hand_tree()
    budget = len(tree.nodes)
    for strategy in (BestFirst(), Greedy()):
        found = evaluations(strategy, [tree], [priors(tree)], 3)
        curves = [replay_search(tree, strategy, priors(tree), budget, seed) for seed in range(3)]
        for share in (0.95, 0.99):
            assert found[share] == [sum(curve.evaluations_to(share) or budget for curve in curves) / 3]


def test_the_benchmark_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [
        replace(hand_tree(), split="test", _observations={}),
        replace(hand_tree(), split="train", _observations={}),
    ]
    monkeypatch.setattr(strategy_replays, "load_trees", lambda folder: trees)
    monkeypatch.setattr(strategy_replays, "data_hash", lambda folders: "0" * 16)
    given = ["x", "--policies", "uniform", "--seeds", "2", "--out", str(tmp_path / "found")]
    monkeypatch.setattr(sys, "argv", ["strategy_replays.py", *given])
    strategy_replays.main()
    data: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    labels = {"mcts, reduced", "mcts, zero", *STRATEGIES}
    assert set(data["uniform"]) == set(data["hindsight"]) == labels
    assert len(data["trees"]) == 1, "what was trained on is left out"
    for policy in ("uniform", "hindsight"):
        for row in data[policy].values():
            assert 1 <= row["0.95"][0] <= row["0.99"][0] <= len(trees[0].nodes)
    assert data["hindsight"]["best_first"]["0.99"][0] <= data["uniform"]["best_first"]["0.99"][0]
