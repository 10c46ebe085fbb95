"""Strategies: one contract for all of them, and each one's own rule against numbers worked out by hand."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from typing import Any

import pytest

from mtmc.errors import ConfigError, RunError
from mtmc.fakes import FakeStrategy
from mtmc.protocols import Strategy, Trial
from mtmc.reward import VALUE_FLOOR
from mtmc.rl.expand import Expand
from mtmc.search.strategies import STRATEGIES, BestOfN, Greedy, Mcts
from mtmc.search.strategies.base import likeliest_first
from mtmc.search.strategies.common import derive_seed, derived_random
from mtmc.search.strategies.mcts_selection import ranked
from mtmc.search.strategies.mcts_tree import backup, initial_value, puct, q_value, score

ALL = [
    *(pytest.param(strategy(), id=name) for name, strategy in STRATEGIES.items()),
    pytest.param(FakeStrategy(), id="fake"),
    pytest.param(Expand(), id="expand"),
]
"""A new strategy is tested by its line in `STRATEGIES`; those below are in no registry."""

WIDTH = 7
"""Legal actions of a right version in `World`; the last one is STOP."""


class World:
    """A made-up tree to search: what a trial leads to follows from its edge. It checks what a strategy asks for.

    One edge in ten has no edit, one in ten leads to a node that is there already, one child in ten fails.
    """

    def __init__(self, strategy: Strategy, seed: int = 0, deterministic: bool = True, depth: int = 5) -> None:
        self.strategy, self.deterministic, self.depth = strategy, deterministic, depth
        self.state: Any = strategy.start(seed, deterministic)
        self.values: list[float] = []
        self.depths: list[int] = []
        self.priors: list[list[float]] = []
        self.edges: Counter[tuple[int, int]] = Counter()
        self.asked: list[Trial] = []
        self.told: list[tuple[int, int | None, float]] = []
        self.add(-1, 0.0)

    def add(self, parent_id: int, value: float) -> int:
        node_id = len(self.values)
        self.values.append(value)
        self.depths.append(0 if parent_id < 0 else self.depths[parent_id] + 1)
        dead = value <= VALUE_FLOOR or self.depths[node_id] >= self.depth
        chance = random.Random(node_id)
        weights = [] if dead else [*(0.1 + chance.random() for _ in range(WIDTH - 1)), 0.2]
        priors = [weight / sum(weights) for weight in weights]
        stop = None if dead else WIDTH - 1
        self.priors.append(priors)
        self.state = self.strategy.add_node(self.state, node_id, parent_id, priors, value, stop)
        return node_id

    def ask(self, n: int) -> list[Trial]:
        trials, self.state = self.strategy.ask(self.state, n)
        assert len(trials) <= n
        for trial in trials:
            assert trial.id == len(self.asked), "ids count up from 0"
            assert 0 <= trial.action_index < WIDTH - 1, "STOP is never asked for"
            assert self.values[trial.node_id] > VALUE_FLOOR and self.depths[trial.node_id] < self.depth
            self.asked.append(trial)
            self.edges[(trial.node_id, trial.action_index)] += 1
        return trials

    def end(self, trial: Trial) -> None:
        key = trial.id if not self.deterministic else trial.node_id * WIDTH + trial.action_index
        chance = random.Random(1000 + key)
        if chance.random() < 0.1:
            self.tell(trial.id, None, VALUE_FLOOR)
        elif chance.random() < 0.1:
            node_id = chance.randrange(len(self.values))
            self.tell(trial.id, node_id, self.values[node_id])
        else:
            value = VALUE_FLOOR if chance.random() < 0.1 else self.values[trial.node_id] + chance.uniform(-0.5, 0.5)
            self.tell(trial.id, self.add(trial.node_id, value), value)

    def tell(self, trial_id: int, child_id: int | None, value: float) -> None:
        self.told.append((trial_id, child_id, value))
        self.state = self.strategy.tell(self.state, trial_id, child_id, value)

    def go(self, trials: int, n: int = 1) -> World:
        while len(self.asked) < trials:
            batch = self.ask(min(n, trials - len(self.asked)))
            if not batch:
                break
            for trial in batch:
                self.end(trial)
        return self

    @property
    def notes(self) -> dict[int, dict[str, float]]:
        return {node_id: dict(note) for node_id, note in self.strategy.annotations(self.state).items()}


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("strategy", ALL)
def test_a_deterministic_coders_edge_is_asked_for_once(strategy: Strategy, n: int) -> None:
    world = World(strategy).go(300, n)
    assert set(world.edges.values()) == {1}
    assert len(world.asked) >= 3


@pytest.mark.parametrize("strategy", ALL)
def test_the_search_ends_by_itself(strategy: Strategy) -> None:
    world = World(strategy, depth=2).go(10_000, 4)
    assert len(world.asked) <= (WIDTH - 1) * (1 + WIDTH - 1)
    assert world.ask(4) == []
    assert world.ask(4) == []


@pytest.mark.parametrize(
    "strategy",
    [strategy for strategy in ALL if strategy.id not in ("greedy", "best_of_n")],
)
def test_every_edge_is_tried_before_nothing_is_left(strategy: Strategy) -> None:
    world = World(strategy, depth=3).go(10_000, 8)
    open_nodes = [
        node_id
        for node_id, value in enumerate(world.values)
        if value > VALUE_FLOOR and world.depths[node_id] < world.depth
    ]
    assert set(world.edges) == {(node_id, index) for node_id in open_nodes for index in range(WIDTH - 1)}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("strategy", ALL)
def test_the_same_seed_asks_for_the_same_trials(strategy: Strategy, n: int, deterministic: bool) -> None:
    first = World(strategy, 3, deterministic).go(120, n)
    second = World(strategy, 3, deterministic).go(120, n)
    assert first.asked == second.asked
    assert first.notes == second.notes


@pytest.mark.parametrize("strategy", ALL)
def test_telling_twice_changes_nothing(strategy: Strategy) -> None:
    once, twice = World(strategy), World(strategy)
    for _ in range(40):
        batch = once.ask(3)
        assert twice.ask(3) == batch
        for trial in batch:
            once.end(trial)
            twice.end(trial)
        for trial_id, child_id, value in twice.told[:]:
            twice.state = strategy.tell(twice.state, trial_id, child_id, value)
            twice.state = strategy.tell(twice.state, trial_id, None, value + 1.0)
        assert once.notes == twice.notes


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("strategy", ALL)
def test_trials_may_end_in_any_order_while_others_are_asked_for(strategy: Strategy, deterministic: bool) -> None:
    """One asked for each time that one ends, eight in flight, the next to end drawn: as where evaluations take time."""
    worlds = [World(strategy, 5, deterministic, depth=3) for _ in range(2)]
    for world in worlds:
        chance = random.Random(1)
        in_flight: list[Trial] = []
        for _ in range(150):
            while len(in_flight) < 8 and (asked := world.ask(1)):
                in_flight += asked
            if not in_flight:
                break
            world.end(in_flight.pop(chance.randrange(len(in_flight))))
        assert len(world.told) >= 3
    assert worlds[0].asked == worlds[1].asked and worlds[0].notes == worlds[1].notes


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("strategy", ALL)
def test_the_state_is_rebuilt_by_the_same_calls(strategy: Strategy, deterministic: bool) -> None:
    """What a resumed run relies on: the recorded calls, batch by batch, give the state back, trials in flight included."""
    sizes = (1, 4, 2, 8, 3, 3, 8, 1)
    world = World(strategy, 4, deterministic)
    for n in sizes:
        for trial in world.ask(n):
            world.end(trial)
    in_flight = world.ask(3)

    state = strategy.add_node(strategy.start(4, deterministic), 0, -1, world.priors[0], 0.0, WIDTH - 1)
    known = 1
    told = iter(world.told)
    for n in sizes:
        trials, state = strategy.ask(state, n)
        for trial in trials:
            trial_id, child_id, value = next(told)
            assert trial_id == trial.id
            if child_id == known:
                priors = world.priors[known]
                stop_index = WIDTH - 1 if priors else None
                state = strategy.add_node(state, known, trial.node_id, priors, value, stop_index)
                known += 1
            state = strategy.tell(state, trial_id, child_id, value)
    trials, state = strategy.ask(state, 3)
    assert trials == in_flight
    assert {node_id: dict(note) for node_id, note in strategy.annotations(state).items()} == world.notes


@pytest.mark.parametrize("strategy", ALL)
def test_adding_a_node_twice_changes_nothing(strategy: Strategy) -> None:
    world = World(strategy).go(10)
    notes = world.notes
    world.state = strategy.add_node(world.state, 0, -1, [1.0], 9.0, None)
    assert world.notes == notes
    assert all(trial.action_index < WIDTH for trial in world.ask(3))


@pytest.mark.parametrize("strategy", ALL)
def test_a_trial_that_was_never_asked_cannot_end(strategy: Strategy) -> None:
    world = World(strategy)
    world.ask(1)
    with pytest.raises(RunError, match="trial 7 was never asked"):
        strategy.tell(world.state, 7, None, 0.0)
    with pytest.raises(RunError, match="trial -1 was never asked"):
        strategy.tell(world.state, -1, None, 0.0)


@pytest.mark.parametrize("strategy", ALL)
def test_asking_before_the_root_is_known_is_an_error(strategy: Strategy) -> None:
    with pytest.raises(RunError, match="before its root was known"):
        strategy.ask(strategy.start(0), 1)


@pytest.mark.parametrize("strategy", ALL)
def test_a_root_without_actions_leaves_nothing_to_try(strategy: Strategy) -> None:
    state = strategy.add_node(strategy.start(0), 0, -1, [], 0.0, None)
    assert strategy.ask(state, 4)[0] == []


@pytest.mark.parametrize("strategy", ALL)
def test_a_root_with_only_stop_leaves_nothing_to_try(strategy: Strategy) -> None:
    state = strategy.add_node(strategy.start(0), 0, -1, [1.0], 0.0, 0)
    assert strategy.ask(state, 4)[0] == []


@pytest.mark.parametrize("strategy", ALL)
def test_every_node_has_notes_of_plain_numbers(strategy: Strategy) -> None:
    world = World(strategy).go(30, 2)
    assert sorted(world.notes) == list(range(len(world.values)))
    for node_id, note in world.notes.items():
        assert {"visits", "value"} <= set(note)
        assert note["value"] == world.values[node_id]
        assert all(isinstance(value, float) and math.isfinite(value) for value in note.values())


@pytest.mark.parametrize("strategy", ALL)
def test_a_strategy_keeps_nothing_to_itself(strategy: Strategy) -> None:
    before = copy.deepcopy(strategy)
    World(strategy, 1).go(50)
    assert strategy == before
    assert World(strategy, 1).go(50).asked == World(before, 1).go(50).asked


def test_derived_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0, "edit", 3, 1) == 6299454818060882044  # the first 63 bits of `printf 0:edit:3:1 | sha256sum`
    assert derive_seed(0, "edit", 31) != derive_seed(0, "edit", 3, 1)
    assert derived_random(0, "a").random() == derived_random(0, "a").random() != derived_random(1, "a").random()


# mcts


def test_puct_is_the_formula() -> None:
    # 0.5 + 2 * 0.25 * sqrt(9) / (1 + 2) = 0.5 + 0.5
    assert puct(0.5, 0.25, 9, 2, 2.0) == pytest.approx(1.0)


def small_tree(strategy: Mcts, deterministic: bool = True) -> Any:
    """A root (value 0, priors 0.5, 0.3, 0.2), not yet asked."""
    return strategy.add_node(strategy.start(0, deterministic), 0, -1, [0.5, 0.3, 0.2], 0.0, None)


def grow(strategy: Mcts, state: Any, node_id: int, value: float, priors: tuple[float, ...] = ()) -> Trial:
    """One trial that makes node `node_id` with `value`; returns the trial."""
    [trial], state = strategy.ask(state, 1)
    strategy.add_node(state, node_id, trial.node_id, priors, value, None)
    strategy.tell(state, trial.id, node_id, value)
    return trial


def test_mcts_selects_as_worked_out_by_hand() -> None:
    strategy = Mcts(exploration=1.0, best_weight=0.5)
    state = small_tree(strategy)
    # Nothing was visited: sqrt(0) = 0, all scores are equal, the greatest prior goes first.
    first = grow(strategy, state, 1, 1.0, (0.6, 0.4))
    assert (first.node_id, first.action_index) == (0, 0)
    # low = 0, high = 1, N = 1. Edge 0: Q = 1, 1 + 0.5 * 1 / 2 = 1.25. Edge 1: Q = norm(0) = 0, 0 + 0.3. Edge 2: 0.2.
    root = state.nodes[0]
    assert [score(state, root, index) for index in range(3)] == pytest.approx([1.25, 0.3, 0.2])
    # So down to node 1 and its likelier edge, which makes node 2 with value -1: low = -1, high = 1.
    second = grow(strategy, state, 2, -1.0)
    assert (second.node_id, second.action_index) == (1, 0)
    # Edge 0 of the root: values 1 and -1, mean 0, best 1: 0.5 * 0 + 0.5 * 1 = 0.5, norm (0.5 + 1) / 2 = 0.75.
    assert q_value(state, root, root.edges[0]) == pytest.approx(0.75)
    # N = 2. 0.75 + 0.5 sqrt(2) / 3 = 0.985702; untried: norm(0) = 0.5 and 0.3 sqrt(2) = 0.424264: 0.924264; 0.782843.
    scores = [score(state, root, index) for index in range(3)]
    assert scores == pytest.approx([0.985702, 0.924264, 0.782843], abs=1e-6)
    # Node 2 has no actions, so edge 0 of node 1 is closed and edge 1 is next; a value of 0 makes edge 0's Q smaller:
    third = grow(strategy, state, 3, 0.0)
    assert (third.node_id, third.action_index) == (1, 1)
    # Node 1 has nothing left, so edge 0 of the root is closed, though its score is still the greatest or near it.
    assert root.edges[0].closed
    fourth = grow(strategy, state, 4, VALUE_FLOOR)
    assert (fourth.node_id, fourth.action_index) == (0, 1)
    # A failure counts as low = -1, not as the floor: norm -> 0; and it does not widen the range.
    assert q_value(state, root, root.edges[1]) == 0.0
    assert (state.low, state.high) == (-1.0, 1.0)


@pytest.mark.parametrize("untried", ["own", "reduced", "zero"])
def test_mcts_ranks_by_the_published_score(untried: Any) -> None:
    world = World(Mcts(untried=untried), depth=6).go(200, 3)
    world.ask(4)
    compared = 0
    for node in world.state.nodes.values():
        for negative, *_, index in ranked(world.state, node):
            assert -negative == pytest.approx(score(world.state, node, index))
            compared += 1
    assert compared > 50


def test_mcts_virtual_loss_keeps_a_batch_apart() -> None:
    strategy = Mcts(exploration=1.0, best_weight=0.0)
    state = small_tree(strategy)
    grow(strategy, state, 1, 1.0, (0.4, 0.3, 0.2, 0.1))
    # low = 0, high = 1. Edge 0 of the root has one visit of value 1, and k in flight: 1 / (1 + k) + 0.5 sqrt(1 + k) /
    # (2 + k) against 0.3 sqrt(1 + k) of edge 1: 1.25 and 0.3; 0.736 and 0.424; 0.550 and 0.520; 0.450 and 0.600.
    trials, state = strategy.ask(state, 4)
    assert [(trial.node_id, trial.action_index) for trial in trials] == [(1, 0), (1, 1), (1, 2), (0, 1)]
    root = state.nodes[0]
    assert q_value(state, root, root.edges[0]) == pytest.approx(1 / 4)
    assert q_value(state, root, root.edges[1]) == 0.0
    for trial in trials:
        strategy.tell(state, trial.id, None, VALUE_FLOOR)
    # No trial made a node: the edges are used up, and no loss stays behind.
    assert q_value(state, root, root.edges[0]) == pytest.approx(1.0)
    assert all(edge.in_flight == 0 for node in state.nodes.values() for edge in node.edges.values())


def test_mcts_expects_of_an_untried_edge_what_it_is_told_to() -> None:
    # Node 1 has the value 1 of 0 to 1, and one of its edges (prior 0.36) was tried: reduced by 0.2 sqrt(0.36) = 0.12.
    expected: dict[str, float] = {"own": 1.0, "reduced": 0.88, "zero": 0.0}
    for untried, value in expected.items():
        strategy = Mcts(exploration=1.0, untried=untried)  # type: ignore[arg-type]
        state = small_tree(strategy)
        grow(strategy, state, 1, 1.0, (0.36, 0.34, 0.3))
        node = state.nodes[1]
        backup(node.try_edge(0, 1), 0.0)
        assert initial_value(state, node, 1) == pytest.approx(value)
        assert score(state, node, 1) == pytest.approx(value + 0.34), "N = 1"
    state = small_tree(Mcts(untried="reduced", reduction=9.0))
    state.nodes[0].try_edge(0, 1)
    assert initial_value(state, state.nodes[0], 1) == 0.0, "0 at least"


@pytest.mark.parametrize(("untried", "following"), [("own", {(1, 0), (1, 2)}), ("zero", {(2, 0)})])
def test_mcts_that_expects_nothing_goes_by_the_priors(untried: Any, following: set[tuple[int, int]]) -> None:
    strategy = Mcts(exploration=1.0, untried=untried)
    state = small_tree(strategy)
    grow(strategy, state, 1, 1.0, (0.02, 0.96, 0.02))
    grow(strategy, state, 2, 0.5, (1.0,))
    # At node 1: the tried edge has 0.5 + 0.96 / 2 = 0.98, the untried ones 1 + 0.02 (own) or 0 + 0.02 (zero).
    [trial], state = strategy.ask(state, 1)
    assert (trial.node_id, trial.action_index) in following


def test_mcts_refuses_settings_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"mcts\.untried cannot be 'none': use one of own, reduced, zero, predicted"):
        Mcts(untried="none")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"mcts\.reduction cannot be -1: use 0 or more"):
        Mcts(reduction=-1)


def test_mcts_credits_a_second_parent_of_the_same_version() -> None:
    strategy = Mcts(exploration=1.0, best_weight=0.0)
    state = small_tree(strategy)
    grow(strategy, state, 1, 1.0)
    grow(strategy, state, 2, 0.0, (1.0,))
    asked = []
    for child_id in (None, 1):
        [trial], state = strategy.ask(state, 1)
        asked.append((trial.node_id, trial.action_index))
        strategy.tell(state, trial.id, child_id, VALUE_FLOOR if child_id is None else 1.0)
    # N = 2, both at value 0: untried (0, 2) has 0.2 sqrt(2), the edge to node 2 0.3 sqrt(2) / 2.
    assert asked == [(0, 2), (2, 0)]
    second, above = state.nodes[2].edges[0], state.nodes[0].edges[1]
    assert (second.visits, second.total, second.best) == (1, 1.0, 1.0)
    assert (above.visits, above.total, above.best) == (2, 1.0, 1.0)
    assert second.closed and second.children == (), "below node 1 the search goes on from its first parent only"
    assert state.nodes[1].parent is state.nodes[0] and q_value(state, state.nodes[0], above) == 0.5


def test_mcts_stop_is_no_visit_and_costs_no_trial() -> None:
    strategy = Mcts()
    state = strategy.add_node(strategy.start(0), 0, -1, [0.1, 0.9], 0.5, 1)
    [trial], state = strategy.ask(state, 1)
    assert trial == Trial(0, 0, 0)
    strategy.tell(state, trial.id, None, VALUE_FLOOR)
    assert list(state.nodes[0].edges) == [0] and state.nodes[0].visits == 0
    assert strategy.ask(state, 1)[0] == []


@pytest.mark.parametrize("name", ["mcts", "greedy", "best_first", "beam"])
def test_the_seed_decides_between_actions_of_equal_priors(name: str) -> None:
    strategy = STRATEGIES[name]()

    def asked(seed: int, priors: list[float]) -> tuple[tuple[int, int], ...]:
        state = strategy.add_node(strategy.start(seed), 0, -1, priors, 0.0, None)
        trials = []
        for node_id in range(1, 5):
            [trial], state = strategy.ask(state, 1)
            state = strategy.add_node(state, node_id, trial.node_id, priors, VALUE_FLOOR, None)
            state = strategy.tell(state, trial.id, None, VALUE_FLOOR)
            trials.append((trial.node_id, trial.action_index))
        return tuple(trials)

    assert len({asked(seed, [0.2] * 5) for seed in range(20)}) > 10
    assert asked(3, [0.2] * 5) == asked(3, [0.2] * 5)
    assert len({asked(seed, [0.1, 0.15, 0.2, 0.25, 0.3]) for seed in range(20)}) == 1, "priors go first"


def test_equal_priors_are_in_every_order_alike() -> None:
    priors, nodes = [0.2, 0.4, 0.2, 0.2], [(seed, node_id) for seed in range(40) for node_id in range(10)]
    counts = Counter(likeliest_first(priors, 2, seed, node_id) for seed, node_id in nodes)
    # Of 400, 200 each; standard deviation 10. STOP, index 2, is the last of its equals.
    assert set(counts) == {(1, 0, 3, 2), (1, 3, 0, 2)} and abs(counts[(1, 0, 3, 2)] - 200) < 4 * 10


def test_mcts_widens_the_edges_of_a_model() -> None:
    strategy = Mcts(expansions=3, widening=0.5, exploration=0.1)
    state = strategy.add_node(strategy.start(0, deterministic=False), 0, -1, [1.0], 0.0, None)
    made = [grow(strategy, state, node_id, 0.1 * node_id, (0.5, 0.5)) for node_id in range(1, 12)]
    at_root = [trial.id for trial in made if trial.node_id == 0]
    # Tries are due at floor(sqrt(1 + N)) = 1, 2, 3: at N = 0, 3 and 8 visits, and never a fourth.
    assert at_root == [0, 3, 8]
    assert len(state.nodes[0].edges[0].children) == 3


def test_mcts_tries_a_models_edge_again_at_once_where_its_children_lead_nowhere() -> None:
    strategy = Mcts(expansions=3)
    state = strategy.add_node(strategy.start(0, deterministic=False), 0, -1, [1.0], 0.0, None)
    assert [grow(strategy, state, node_id, VALUE_FLOOR).node_id for node_id in (1, 2, 3)] == [0, 0, 0]
    assert strategy.ask(state, 1)[0] == []


def test_mcts_finds_the_best_line_sooner_than_chance() -> None:
    """A tree of depth 5 where action 0 always gains and the others lose, and the priors say nothing."""

    def found(strategy: Strategy) -> float:
        state = strategy.start(0)
        values = {0: 0.0}
        state = strategy.add_node(state, 0, -1, [0.25] * 4, 0.0, None)
        depths = {0: 0}
        for node_id in range(1, 60):
            [trial], state = strategy.ask(state, 1)
            parent = trial.node_id
            gain = [0.3, -0.3, -0.2, -0.1][(trial.action_index + parent) % 4]
            values[node_id], depths[node_id] = values[parent] + gain, depths[parent] + 1
            priors = [0.25] * 4 if depths[node_id] < 5 else []
            state = strategy.add_node(state, node_id, parent, priors, values[node_id], None)
            state = strategy.tell(state, trial.id, node_id, values[node_id])
        return max(values.values())

    assert found(Mcts()) == pytest.approx(1.5)
    assert found(BestOfN()) < 1.5


# greedy


def run_greedy(
    strategy: Greedy, priors: list[float], values: list[float], stop: int | None = None
) -> tuple[list[Trial], Any]:
    """Every node has `priors`; trials make nodes 1, 2, ... with `values`. Returns all trials asked for."""
    state = strategy.add_node(strategy.start(0), 0, -1, priors, 0.0, stop)
    asked = []
    for node_id, value in enumerate(values, 1):
        trials, state = strategy.ask(state, 4)
        if not trials:
            break
        assert len(trials) == 1 and strategy.ask(state, 4)[0] == [], "one step at a time"
        asked += trials
        dead = value <= VALUE_FLOOR
        state = strategy.add_node(
            state, node_id, trials[0].node_id, [] if dead else priors, value, None if dead else stop
        )
        state = strategy.tell(state, trials[0].id, node_id, value)
    return asked, state


def test_greedy_takes_the_likeliest_action_and_goes_on_from_its_result() -> None:
    asked, state = run_greedy(Greedy(), [0.2, 0.5, 0.3], [1.0, VALUE_FLOOR, 0.5, 0.7])
    assert [(trial.node_id, trial.action_index) for trial in asked] == [(0, 1), (1, 1), (1, 2), (3, 1)]
    assert state.line == [0, 1, 3, 4]
    assert [note["visits"] for note in Greedy().annotations(state).values()] == [1.0, 1.0, 0.0, 1.0, 1.0]


def test_greedy_follows_only_what_is_not_slower_if_told_so() -> None:
    asked, state = run_greedy(Greedy(follow="best"), [0.2, 0.5, 0.3], [1.0, 0.5, 1.0])
    assert [(trial.node_id, trial.action_index) for trial in asked] == [(0, 1), (1, 1), (1, 2)]
    assert state.line == [0, 1, 3]


def test_greedy_ends_where_stop_is_likeliest() -> None:
    asked, state = run_greedy(Greedy(), [0.5, 0.2, 0.3], [VALUE_FLOOR, 1.0, 1.0], stop=2)
    assert [(trial.node_id, trial.action_index) for trial in asked] == [(0, 0)]
    assert state.done


def test_greedy_takes_the_next_action_after_a_duplicate() -> None:
    strategy = Greedy()
    state = strategy.add_node(strategy.start(0), 0, -1, [0.6, 0.4], 0.0, None)
    [trial], state = strategy.ask(state, 1)
    state = strategy.tell(state, trial.id, 0, 0.0)
    assert strategy.ask(state, 1)[0] == [Trial(1, 0, 1)]


# best_of_n


def test_best_of_n_draws_from_the_prior() -> None:
    strategy = BestOfN(patience=1000)
    counts: Counter[int] = Counter()
    for seed in range(400):
        state = strategy.add_node(strategy.start(seed), 0, -1, [0.7, 0.2, 0.1], 0.0, None)
        [trial], state = strategy.ask(state, 1)
        counts[trial.action_index] += 1
    # Standard deviation of the first count: sqrt(400 * 0.7 * 0.3) = 9.2.
    assert abs(counts[0] - 280) < 4 * 9.2 and counts[1] > counts[2] > 0


def test_best_of_n_rollouts_share_what_a_deterministic_coder_made() -> None:
    strategy = BestOfN(rollouts=3)
    state = strategy.add_node(strategy.start(0), 0, -1, [1.0], 0.0, None)
    [trial], state = strategy.ask(state, 3)
    state = strategy.add_node(state, 1, 0, [], 1.0, None)
    state = strategy.tell(state, trial.id, 1, 1.0)
    assert strategy.ask(state, 3)[0] == []
    assert strategy.annotations(state)[1]["visits"] == 3.0


def test_best_of_n_rollouts_of_a_model_each_make_their_own() -> None:
    strategy = BestOfN(rollouts=3)
    state = strategy.add_node(strategy.start(0, deterministic=False), 0, -1, [1.0], 0.0, None)
    trials, state = strategy.ask(state, 8)
    assert trials == [Trial(0, 0, 0), Trial(1, 0, 0), Trial(2, 0, 0)]


def test_best_of_n_goes_on_from_a_version_that_is_there_already() -> None:
    strategy = BestOfN(rollouts=1)
    state = strategy.add_node(strategy.start(0), 0, -1, [1.0], 0.0, None)
    [trial], state = strategy.ask(state, 1)
    state = strategy.add_node(state, 1, 0, [1.0], 0.5, None)
    state = strategy.tell(state, trial.id, 1, 0.5)
    [trial], state = strategy.ask(state, 1)
    assert trial.node_id == 1
    state = strategy.tell(state, trial.id, 1, 0.5)
    assert strategy.ask(state, 1)[0] == [], "it goes in circles until its steps are used up"
    assert strategy.annotations(state)[1]["visits"] == 64.0


def test_best_of_n_gives_up_when_nothing_is_new() -> None:
    strategy = BestOfN(patience=5)
    state = strategy.add_node(strategy.start(0, deterministic=False), 0, -1, [1.0], 0.0, None)
    asked = 0
    while trials := strategy.ask(state, 1)[0]:
        asked += 1
        state = strategy.tell(state, trials[0].id, None, VALUE_FLOOR)
    assert asked == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mcts(exploration=0.0), r"mcts\.exploration cannot be 0\.0: use a number above 0"),
        (lambda: Mcts(best_weight=1.5), r"mcts\.best_weight cannot be 1\.5"),
        (lambda: Mcts(expansions=0), r"mcts\.expansions cannot be 0"),
        (lambda: Mcts(widening=-1.0), r"mcts\.widening cannot be -1\.0"),
        (
            lambda: Greedy(follow="worst"),  # type: ignore[arg-type]
            r'greedy\.follow cannot be \'worst\': use "last" or "best"',
        ),
        (lambda: BestOfN(rollouts=0), r"best_of_n\.rollouts cannot be 0"),
        (lambda: BestOfN(patience=-3), r"best_of_n\.patience cannot be -3"),
    ],
)
def test_settings_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
