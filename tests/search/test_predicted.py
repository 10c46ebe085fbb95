"""Expected gains: from the policy by way of the record to the strategies that go by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mtmc.action import Action
from mtmc.errors import ConfigError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.protocols import Observation, Strategy
from mtmc.reward import log_speedup
from mtmc.search import SearchResult, load, search
from mtmc.search.canonical import canonical_json
from mtmc.search.strategies import BestFirst, Mcts
from mtmc.search.strategies.base import PlainState, TreeStrategy
from mtmc.search.strategies.mcts_selection import ranked
from mtmc.search.strategies.mcts_tree import initial_value, score
from mtmc.store import Store


def begin(folder: Path, strategy: Strategy, policy: FakePolicy, **arguments: Any) -> SearchResult:
    given = {"coder": FakeCoder(), "evaluator": FakeEvaluator(), "budget": 24, "dumps": False, **arguments}
    return search(FAKE_TASK, strategy=strategy, policy=policy, out=folder, **given)


@dataclass(frozen=True)
class Noting(TreeStrategy[PlainState]):
    """Notes what it is told, and tries nothing after the root's actions."""

    def next_edge(self, state: PlainState) -> tuple[int, int] | None:
        return (0, state.nodes[0].untried[0]) if state.nodes[0].untried else None


@dataclass(frozen=True)
class OfOldTimes(Noting):
    """A strategy from before there were expected values."""

    def add_node(  # type: ignore[override]
        self,
        state: Any,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> Any:
        return super().add_node(state, node_id, parent_id, priors, value, stop_index)


def test_what_a_policy_expects_is_recorded_and_told_as_values(tmp_path: Path) -> None:
    told: dict[int, Any] = {}

    class Listening(Noting):
        def added(self, state: PlainState, node: Any) -> None:
            told[node.id] = node.expected

    result = begin(tmp_path, Listening(), FakePolicy(expects=True))
    store = Store.read(tmp_path)
    compared = 0
    for node in result.tree:
        legal = store.legal_actions(node.id)
        if not legal.actions:
            assert legal.gains is None and told[node.id] is None
            continue
        assert legal.gains is not None and len(legal.gains) == len(legal.actions) and legal.gains[-1] == 0.0
        value = log_speedup(node.outcome, result.tree.root.outcome)
        assert told[node.id] == pytest.approx([value + gain for gain in legal.gains])
        compared += 1
    store.close()
    assert compared > 3


@pytest.mark.parametrize("strategy", [BestFirst(), Mcts(untried="predicted")])
def test_a_run_by_expected_values_can_be_rebuilt_from_its_record(tmp_path: Path, strategy: Strategy) -> None:
    result = begin(tmp_path / "run", strategy, FakePolicy(expects=True))
    again = load(tmp_path / "run", strategy=strategy)
    assert canonical_json(again) == canonical_json(result)
    other = begin(tmp_path / "other", strategy, FakePolicy())
    assert [node.hash for node in other.tree] != [node.hash for node in result.tree], "they make a difference"


def test_a_strategy_that_takes_none_goes_with_a_policy_that_gives_none(tmp_path: Path) -> None:
    assert len(begin(tmp_path, OfOldTimes(), FakePolicy()).tree) > 3


@pytest.mark.parametrize("gains", [[0.0], [math.nan] * 7, [math.inf] * 7])
def test_a_policy_that_expects_nonsense_is_refused(tmp_path: Path, gains: list[float]) -> None:
    class Wrong(FakePolicy):
        def expected_gains(self, observation: Observation, actions: Sequence[Action]) -> list[float] | None:
            return gains

    with pytest.raises(
        ConfigError, match=r"policy Wrong gave .* as expected gains of 7 actions: it must give 7 finite"
    ):
        begin(tmp_path, BestFirst(), Wrong())


def test_best_first_goes_by_what_is_expected() -> None:
    strategy = BestFirst(prior_weight=1.0)
    state = strategy.add_node(strategy.start(0), 0, -1, [0.5, 0.3, 0.2], 0.0, None, [-0.4, 0.1, 0.15])
    # 0.5 - 0.4 = 0.1, 0.3 + 0.1 = 0.4, 0.2 + 0.15 = 0.35.
    asked = [strategy.ask(state, 1)[0][0].action_index for _ in range(3)]
    assert asked == [1, 2, 0]


def test_mcts_expects_what_is_predicted() -> None:
    strategy = Mcts(untried="predicted", exploration=1.0)
    state = strategy.add_node(strategy.start(0), 0, -1, [0.5, 0.3, 0.2], 0.0, None, [0.5, 2.0, -1.0])
    [trial], state = strategy.ask(state, 1)
    assert trial.action_index == 0, "a range of one point: all are 0.5, and the greatest prior goes first"
    strategy.add_node(state, 1, 0, (), 1.0, None)
    strategy.tell(state, trial.id, 1, 1.0)
    root = state.nodes[0]
    # Range 0 to 1, N = 1: 2.0 + 0.3 and max(0, -1.0) + 0.2.
    assert [initial_value(state, root, index) for index in (1, 2)] == [2.0, 0.0]
    assert [score(state, root, index) for index in (1, 2)] == pytest.approx([2.3, 0.2])
    assert {index: -minus for minus, _, _, index in ranked(state, root)} == pytest.approx({1: 2.3, 2: 0.2})
    assert strategy.ask(state, 1)[0][0].action_index == 1


def test_mcts_without_a_prediction_expects_the_versions_own_value() -> None:
    strategy = Mcts(untried="predicted")
    state = strategy.add_node(strategy.start(0), 0, -1, [0.6, 0.4], 0.3, None)
    assert initial_value(state, state.nodes[0], 1) == 0.5
    strategy.add_node(state, 1, 0, (), 1.3, None)
    assert initial_value(state, state.nodes[0], 1) == 0.0
