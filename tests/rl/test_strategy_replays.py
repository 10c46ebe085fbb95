"""The benchmark of strategies on recorded trees, from end to end on two small ones."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import strategy_replays
from benchmarks.strategy_replays import evaluations, replayed
from mtmc.errors import RunError
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.rl.priced import priced_trees
from mtmc.rl.replays import replay_search
from mtmc.rl.trees import RecordedTree
from mtmc.search import load, search
from mtmc.search.strategies import STRATEGIES, BestFirst, Greedy
from tests.rl.recorded import hand_tree


def priors(tree: RecordedTree) -> list[list[float]]:
    return [[1.0 / max(1, len(node.actions))] * len(node.actions) for node in tree.nodes]


def test_evaluations_are_means_over_the_seeds() -> None:
    tree = hand_tree()
    budget = len(tree.nodes)
    for strategy in (BestFirst(), Greedy()):
        found = evaluations(replayed(strategy, [tree], [priors(tree)], 3), [budget])
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
    monkeypatch.setattr(strategy_replays, "is_dataset", lambda folder: True)
    given = ["x", "--policies", "uniform", "--seeds", "2", "--budgets", "2", "4", "--out", str(tmp_path / "found")]
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
    after = data["uniform"]["greedy"]["after"]
    assert list(after) == ["2", "4"] and after["2"]["geometric_mean"] <= after["4"]["geometric_mean"]
    assert data["uniform"]["mcts"]["after"]["4"]["paired"] is None and after["4"]["paired"]["p"] == 1.0  # of one tree
    text, page = (tmp_path / "found.md").read_text(), (tmp_path / "found.html").read_text()
    assert "## Priors uniform, after 4 evaluations" in text and "## mcts by its priors, after 2 evaluations" in text
    assert "Priors hindsight, evaluations to a goal" in page
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def run_of_fakes(out: Path, seed: int) -> None:
    search(
        "softmax", strategy="random", policy=FakePolicy(), coder=FakeCoder(), evaluator=FakeEvaluator(seconds=0.002),
        budget=14, seed=seed, out=out, dumps=False, progress=False,
    )  # fmt: skip


def test_runs_have_times_and_prices(tmp_path: Path) -> None:
    run_of_fakes(tmp_path / "runs" / "a", 0)
    [priced] = priced_trees(tmp_path / "runs")
    result = load(tmp_path / "runs" / "a")
    assert len(priced.tree.nodes) == len(result.tree) == len(priced.seconds)
    assert priced.usd == tuple(node.cost.usd for node in result.tree) and sum(priced.usd) > 0
    assert all(seconds >= 0.002 for seconds in priced.seconds)
    with pytest.raises(RunError, match="no run"):
        priced_trees(tmp_path / "nothing")


def test_the_page_of_runs_goes_by_time_and_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (0, 1):
        run_of_fakes(tmp_path / "runs" / str(seed), seed)
    given = [str(tmp_path / "runs"), "--policies", "uniform", "heuristic", "--seeds", "1"]
    more = ["--strategies", "mcts", "random", "--no-hindsight"]  # a fake has no plans
    monkeypatch.setattr(sys, "argv", ["strategy_replays.py", *given, *more, "--out", str(tmp_path / "found")])
    strategy_replays.main()
    text = (tmp_path / "found.html").read_text()
    start = text.index('id="run-data">') + len('id="run-data">')
    data = json.loads(text[start : text.index("</script>", start)])
    assert [(each["policy"], each["name"]) for each in data["series"]] == [
        (policy, name) for policy in ("uniform", "heuristic") for name in ("mcts", "random")
    ]
    for each in data["series"]:
        ends = {name: rows[-1] for name, rows in each["points"].items()}
        assert set(ends) == {"evaluations", "seconds", "usd"}
        assert ends["seconds"][1:] == ends["usd"][1:] == ends["evaluations"][1:]  # in the end all is found
        assert all(low <= gain <= high for rows in each["points"].values() for _, gain, low, high in rows)


def test_what_cannot_be_compared_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["strategy_replays.py", str(tmp_path)])
    with pytest.raises(RunError, match="no run"):
        strategy_replays.main()
    monkeypatch.setattr(sys, "argv", ["strategy_replays.py", str(tmp_path), "--strategies", "random"])
    with pytest.raises(SystemExit):
        strategy_replays.main()
