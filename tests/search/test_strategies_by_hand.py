"""best_first, beam, evolution, random and ab_mcts: each one's own rule against numbers worked out by hand."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from mtmc.errors import ConfigError
from mtmc.protocols import Strategy, Trial
from mtmc.reward import VALUE_FLOOR
from mtmc.search.strategies import AbMcts, Beam, BestFirst, Evolution, Random
from mtmc.search.strategies.arm import Arm, thompson


class Line:
    """A search of a made-up tree: every trial makes the next node, with the value and the priors given for it."""

    def __init__(self, strategy: Strategy, priors: Sequence[float], seed: int = 0, deterministic: bool = True) -> None:
        self.strategy = strategy
        self.priors = list(priors)
        self.state: Any = strategy.start(seed, deterministic)
        self.state = strategy.add_node(self.state, 0, -1, priors, 0.0, None)
        self.nodes = 1

    def ask(self, n: int = 1) -> list[Trial]:
        trials, self.state = self.strategy.ask(self.state, n)
        return trials

    def end(self, trial: Trial, value: float, priors: Sequence[float] | None = None) -> int:
        """The trial makes a node; returns its id. priors: those of the root by default, none for a failure."""
        given = ([] if value <= VALUE_FLOOR else self.priors) if priors is None else priors
        node_id, self.nodes = self.nodes, self.nodes + 1
        self.state = self.strategy.add_node(self.state, node_id, trial.node_id, given, value, None)
        self.state = self.strategy.tell(self.state, trial.id, node_id, value)
        return node_id

    def go(self, values: Sequence[float]) -> list[tuple[int, int]]:
        """A trial for each value, one after the other; returns their edges."""
        edges = []
        for value in values:
            [trial] = self.ask()
            edges.append((trial.node_id, trial.action_index))
            self.end(trial, value)
        return edges


# best_first


def test_best_first_adds_the_prior_to_the_value() -> None:
    line = Line(BestFirst(prior_weight=2.0), [0.2, 0.5, 0.3])
    # Root, value 0: scores 0.4, 1.0, 0.6. Node 1, value -0.5: -0.1, 0.5, 0.1. So the root's 0.6 is next, which makes
    # node 2, value 0.3: 0.7, 1.3, 0.9. Its likeliest makes node 3, a failure; then 0.9 and 0.7 of node 2, which make
    # nodes 4 and 5 of values -1 and -2 (scores 0, at most). What is left: 0.5 of node 1, 0.4 of the root, 0.1.
    values = [-0.5, 0.3, VALUE_FLOOR, -1.0, -2.0, -2.0, -2.0]
    assert line.go(values) == [(0, 1), (0, 2), (2, 1), (2, 2), (2, 0), (1, 1), (0, 0)]
    assert BestFirst(2.0).score(line.state.nodes[2], 1) == pytest.approx(1.3)


def test_best_first_without_weight_goes_through_the_fastest_version() -> None:
    line = Line(BestFirst(prior_weight=0.0), [0.2, 0.5, 0.3])
    assert line.go([-0.1, 0.1, 0.0, 0.1]) == [(0, 1), (0, 2), (2, 1), (2, 2)]
    # Node 4 has the value of node 2, which is older and has an action left.
    assert [(trial.node_id, trial.action_index) for trial in line.ask(2)] == [(2, 0), (4, 1)]


def test_best_first_refuses_a_weight_below_0() -> None:
    with pytest.raises(ConfigError, match=r"best_first\.prior_weight cannot be -1: use 0 or more"):
        BestFirst(prior_weight=-1)


# beam


def test_beam_goes_on_from_the_best_of_each_level_and_then_from_the_best_left() -> None:
    line = Line(Beam(width=2, branch=2), [0.2, 0.5, 0.3])
    first = line.ask(8)
    assert [(trial.node_id, trial.action_index) for trial in first] == [(0, 1), (0, 2)], "two tries of the root"
    line.end(first[1], 0.1)
    assert line.ask(8) == [], "a level ends before the next begins"
    line.end(first[0], 0.4)
    second = line.ask(8)
    # Node 2 (0.4) before node 1 (0.1), in turn.
    assert [(trial.node_id, trial.action_index) for trial in second] == [(2, 1), (1, 1), (2, 2), (1, 2)]
    for trial, value in zip(second, (0.2, VALUE_FLOOR, 0.3, 0.25), strict=True):
        line.end(trial, value)
    third = line.ask(8)
    assert [trial.node_id for trial in third] == [5, 6, 5, 6], "0.3 and 0.25, though node 2 with 0.4 is better"
    for trial in third:
        line.end(trial, VALUE_FLOOR)
    # The level led nowhere: the best versions with an untried action are node 2 (0.4) and node 5 (0.3), with one each.
    assert [(trial.node_id, trial.action_index) for trial in line.ask(8)] == [(2, 0), (5, 0)]


def test_beam_refuses_settings_below_1() -> None:
    with pytest.raises(ConfigError, match=r"beam\.width cannot be 0: use 1 or more"):
        Beam(width=0)
    with pytest.raises(ConfigError, match=r"beam\.branch cannot be 0: use 1 or more"):
        Beam(branch=0)


# evolution


def test_evolution_keeps_islands_apart_until_a_migration() -> None:
    line = Line(Evolution(islands=2, population=1, tournament=1, migration=4), [0.25] * 4)
    # Islands take turns; one parent each, its best. Node 1 (0.5) lives on island 0, node 2 (0.2) on island 1.
    assert [node_id for node_id, _ in line.go([0.5, 0.2, -1.0])] == [0, 0, 1]
    assert [[node_id for _, node_id in island] for island in line.state.islands] == [[1, 0, 3], [2, 0]]
    # The fourth trial is told: node 1, the best of island 0, also lives on island 1, and node 2 on island 0.
    assert [node_id for node_id, _ in line.go([-1.0])] == [2]
    assert [[node_id for _, node_id in island] for island in line.state.islands] == [[1, 2, 0, 3], [1, 2, 0, 4]]
    assert [node_id for node_id, _ in line.go([-1.0, -1.0])] == [1, 1]


def test_evolution_lets_the_best_of_a_tournament_breed() -> None:
    counts: Counter[int] = Counter()
    for seed in range(600):
        line = Line(Evolution(islands=1, population=2, tournament=2), [0.5, 0.3, 0.2], seed)
        line.go([1.0])
        counts[line.ask()[0].node_id] += 1
    # The better of two wins unless both draws hit the other: 3 / 4 of 600 is 450, standard deviation 10.6.
    assert abs(counts[1] - 450) < 4 * 10.6 and counts[0] + counts[1] == 600


def test_evolution_draws_mutations_by_their_priors() -> None:
    counts = Counter(Line(Evolution(), [0.7, 0.2, 0.1], seed).ask()[0].action_index for seed in range(400))
    # Standard deviation of the first count: sqrt(400 * 0.7 * 0.3) = 9.2.
    assert abs(counts[0] - 280) < 4 * 9.2 and counts[1] > counts[2] > 0


def test_evolution_refuses_settings_below_1() -> None:
    for name in ("islands", "population", "tournament", "migration"):
        with pytest.raises(ConfigError, match=rf"evolution\.{name} cannot be 0: use 1 or more"):
            Evolution(**{name: 0})


# random


def test_random_draws_versions_and_actions_uniformly() -> None:
    edges: Counter[tuple[int, int]] = Counter()
    for seed in range(800):
        line = Line(Random(), [0.98, 0.01, 0.01], seed)
        [first] = line.ask()
        line.end(first, 3.0)
        [second] = line.ask()
        edges[(second.node_id, second.action_index)] += 1
    # Half of 800 from each of two versions (deviation 14.1), and a third of those of node 1 an action (deviation 10.7).
    assert abs(sum(count for (node_id, _), count in edges.items() if node_id == 1) - 400) < 4 * 14.1
    assert all(abs(edges[(1, index)] - 800 / 6) < 4 * 10.7 for index in range(3))


# ab_mcts


def test_an_arms_moments_are_those_of_its_values_in_the_range() -> None:
    arm = Arm()
    for value in (1.0, 2.0, VALUE_FLOOR, 1.5):
        arm.note(value)
    # Range 1 to 3: 0, 0.5, 0 (a failure) and 0.25: mean 0.1875, squares 0.3125 - 4 * 0.1875^2 = 0.171875.
    assert arm.moments(1.0, 3.0) == pytest.approx((0.1875, 0.171875))
    # A range of one point: 0.5, 0.5, 0, 0.5.
    assert arm.moments(1.0, 1.0) == pytest.approx((0.375, 0.1875))
    assert Arm().moments(0.0, 1.0) == (0.0, 0.0)


def test_thompson_draws_from_the_posterior() -> None:
    # n = 3, mean 0.6, squares 0.02, expected 0.2, spread 0.3: nu = k = 4, m = (0.2 + 1.8) / 4 = 0.5,
    # nu s2 = 0.09 + 0.02 + 3 * 0.16 / 4 = 0.23. Draws are Student's t with 4 degrees of freedom, scale
    # sqrt(0.23 / 4 / 4) = 0.1199, whose quartiles are 0.5 -+ 0.7407 * 0.1199 = 0.4112 and 0.5888.
    chance = random.Random(3)
    drawn = [thompson(chance, 3, 0.6, 0.02, 0.2, 0.3) for _ in range(20_000)]
    low, middle, high = statistics.quantiles(drawn, n=4)
    assert (low, middle, high) == pytest.approx((0.4112, 0.5, 0.5888), abs=0.006)


def test_ab_mcts_notes_what_each_arm_has_given() -> None:
    line = Line(AbMcts(), [1.0], deterministic=False)
    first = line.ask()[0]
    one = line.end(first, 1.0)
    state = line.state
    root, child = state.nodes[0], state.nodes[one]
    assert (root.wider.total, root.deeper.count, root.all.count, child.all.total) == (1.0, 0, 2, 1.0)
    assert (root.left, root.below, child.left) == (2, 3, 3)
    asked = line.ask()[0]
    while asked.node_id == 0:
        line.strategy.tell(line.state, asked.id, None, VALUE_FLOOR)
        asked = line.ask()[0]
    assert root.wider.failures == root.wider.count - 1, "no edit counts as a failure, of its own version alone"
    assert root.all.count == 2
    line.end(asked, 0.5)
    assert (child.wider.total, child.deeper.count, child.all.total) == (0.5, 0, 1.5)
    assert (root.deeper.total, root.deeper.count) == (0.5, 1)
    assert root.below == 2 + 3, "one of the child's three trials is spent, and the new version brings three"


def test_ab_mcts_goes_wider_where_that_gives_more_and_deeper_where_that_does() -> None:
    def shares(wider: float, deeper: float) -> float:
        """Share of trials at the root, of 200 searches whose trials there give `wider`, and all others `deeper`."""
        at_root = 0
        for seed in range(200):
            line = Line(AbMcts(tries=9), [1.0], seed, deterministic=False)
            for _ in range(8):
                [trial] = line.ask()
                line.end(trial, wider if trial.node_id == 0 else deeper)
            at_root += line.ask()[0].node_id == 0
        return at_root / 200

    assert shares(1.0, 0.2) > 0.6 > 0.4 > shares(0.2, 1.0)


def test_ab_mcts_tries_an_action_again_once_each_was_tried() -> None:
    line = Line(AbMcts(tries=2), [0.2, 0.5, 0.3], deterministic=False)
    asked = []
    while trials := line.ask():
        asked.append(trials[0].action_index)
        line.end(trials[0], VALUE_FLOOR)
    assert asked == [1, 2, 0, 1, 2, 0]


def test_ab_mcts_refuses_settings_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"ab_mcts\.spread cannot be 0: use a number above 0"):
        AbMcts(spread=0)
    with pytest.raises(ConfigError, match=r"ab_mcts\.tries cannot be 0: use 1 or more"):
        AbMcts(tries=0)
