"""The strategy that grows trees to learn from. The contract of strategies is the same as in tests/test_strategies.py."""

from __future__ import annotations

import pytest

from mtmc.errors import ConfigError, RunError
from mtmc.reward import VALUE_FLOOR
from mtmc.rl.expand import Expand, ExpandState

WIDTH = 4


def grown(strategy: Expand, trials: int, seed: int = 0) -> tuple[ExpandState, list[tuple[int, int]]]:
    """A tree in which action 0 of every node doubles the speed, 1 fails, 2 changes nothing, and 3 is `STOP`."""
    state = strategy.start(seed)
    strategy.add_node(state, 0, -1, [0.4, 0.3, 0.2, 0.1], 0.0, stop_index=3)
    edges = []
    for number in range(1, trials + 1):
        [trial], state = strategy.ask(state, 1)
        edges.append((trial.node_id, trial.action_index))
        parent = state.nodes[trial.node_id].value
        value = {0: parent + 1.0, 1: VALUE_FLOOR, 2: parent}[trial.action_index]
        priors = [] if value == VALUE_FLOOR else [0.4, 0.3, 0.2, 0.1]
        strategy.add_node(state, number, trial.node_id, priors, value, 3 if priors else None)
        strategy.tell(state, trial.id, number, value)
        strategy.tell(state, trial.id, number, value)  # twice changes nothing
    return state, edges


def test_no_edge_is_tried_twice_and_stop_never() -> None:
    _, edges = grown(Expand(), 60)
    assert len(set(edges)) == 60
    assert all(index != 3 for _, index in edges)


def test_the_same_seed_gives_the_same_trials() -> None:
    assert grown(Expand(), 30, seed=1)[1] == grown(Expand(), 30, seed=1)[1]
    assert grown(Expand(), 30, seed=1)[1] != grown(Expand(), 30, seed=2)[1]


def test_complete_tries_what_else_could_be_done_on_the_way_to_the_best() -> None:
    strategy = Expand(blind=0.0, complete=1.0)
    for trials in range(20):
        state, _ = grown(strategy, trials)
        line = [state.best]
        while line[-1] != 0:
            line.append(state.nodes[line[-1]].parent_id)
        incomplete = [node for node in line if state.nodes[node].untried]
        [trial], _ = strategy.ask(state, 1)
        assert trial.node_id in incomplete or not incomplete


def test_what_is_known_leads_to_better_versions_than_chance() -> None:
    deepest = [
        sum(max(n.value for n in grown(Expand(blind, 0.0), 25, seed)[0].nodes.values()) for seed in range(8))
        for blind in (0.0, 1.0)
    ]
    assert deepest[0] > 1.5 * deepest[1]


def test_it_ends_where_nothing_is_open_and_wants_its_root_first() -> None:
    strategy = Expand()
    state = strategy.start(0)
    with pytest.raises(RunError, match="root"):
        strategy.ask(state, 1)
    strategy.add_node(state, 0, -1, [0.5, 0.5], 0.0, stop_index=1)
    trials, state = strategy.ask(state, 5)
    assert [(each.node_id, each.action_index) for each in trials] == [(0, 0)]
    assert strategy.ask(state, 5)[0] == []
    strategy.tell(state, trials[0].id, None, VALUE_FLOOR)
    assert strategy.annotations(state) == {0: {"visits": 1.0, "value": 0.0, "prior": 1.0}}


def test_shares_are_checked() -> None:
    with pytest.raises(ConfigError, match="blind cannot be 2"):
        Expand(blind=2.0)
    with pytest.raises(ConfigError, match="sum to 1"):
        Expand(blind=0.6, complete=0.6)
    with pytest.raises(ConfigError, match="focus"):
        Expand(focus=-1.0)
