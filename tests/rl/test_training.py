"""PPO and GRPO: advantages and losses by hand, episodes as in the environment, a known best way, resuming."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.features import action_features, observation_features
from mtmc.agents.policies.learned.vectors import matrix
from mtmc.errors import ConfigError
from mtmc.reward import VALUE_FLOOR
from mtmc.rl.curves import Row
from mtmc.rl.environment import OnFailure, Rules, TreeEnvironment
from mtmc.rl.forest import Forest, forest_of
from mtmc.rl.replays import replay_search
from mtmc.rl.rewards import RewardName
from mtmc.rl.train.advantages import generalized_advantages, group_advantages, returns_of, standardized
from mtmc.rl.train.algorithms import Algorithm, Grpo, Ppo
from mtmc.rl.train.checkpoint import read_checkpoint
from mtmc.rl.train.loss import Coefficients, Steps, Terms, terms_of
from mtmc.rl.train.open_space import open_space
from mtmc.rl.train.pretraining import Pretraining, action_values, pretraining_terms, targets_of
from mtmc.rl.train.ragged import argmax_np, log_softmax, log_softmax_np
from mtmc.rl.train.rollouts import roll
from mtmc.rl.train.settings import TrainSettings
from mtmc.rl.train.table import policy_table
from mtmc.rl.train.trainer import Trainer
from mtmc.rl.train.validate import mean_evaluations, priors_by_tree, score, validate
from mtmc.search.strategies import Greedy
from tests.rl.recorded import hand_tree
from tests.rl.toys import TableScorer, detour_tree


def test_generalized_advantages_by_hand() -> None:
    rewards = np.array([[1.0, 0.0, 2.0], [0.5, 9.0, 9.0]])
    values = np.array([[0.5, 1.0, 1.5], [0.2, 9.0, 9.0]])
    valid = np.array([[True, True, True], [True, False, False]])
    found = generalized_advantages(rewards, values, valid, np.array([0.0, 3.0]), gamma=0.9, gae_lambda=0.5)
    # the first ends by itself: d = 2 - 1.5, 0 + 0.9 * 1.5 - 1, 1 + 0.9 * 1 - 0.5
    last, middle = 0.5, 0.35 + 0.45 * 0.5
    assert found[0].tolist() == pytest.approx([1.4 + 0.45 * middle, middle, last])
    # the second is cut off after one step, at a state of value 3
    assert found[1].tolist() == pytest.approx([0.5 + 0.9 * 3.0 - 0.2, 0.0, 0.0])


def test_group_advantages_by_hand() -> None:
    rewards, valid = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[True, True], [True, False]])
    assert returns_of(rewards, valid, 0.5).tolist() == [2.0, 3.0]
    found = group_advantages(np.array([1.0, 3.0, 2.0, 2.0]), group_size=2)
    assert found.tolist() == pytest.approx([-1.0, 1.0, 0.0, 0.0])
    spread = standardized(np.array([[1.0, 3.0], [99.0, 2.0]]), np.array([[True, True], [False, True]]))
    assert spread[valid.all(axis=1)].tolist() == [pytest.approx([-math.sqrt(1.5), math.sqrt(1.5)])]
    assert spread[1, 0] == 0.0


def test_ragged_softmax_and_argmax() -> None:
    logits, counts = np.array([0.0, math.log(3.0), 5.0, 1.0, 1.0]), np.array([2, 1, 2])
    expected = [0.25, 0.75, 1.0, 0.5, 0.5]
    assert np.exp(log_softmax_np(logits, counts)).tolist() == pytest.approx(expected)
    group_of = torch.tensor([0, 0, 1, 2, 2])
    assert log_softmax(torch.tensor(logits), group_of, 3).exp().tolist() == pytest.approx(expected)
    assert argmax_np(logits, counts).tolist() == [1, 0, 0]


def two_steps(logits: torch.Tensor, values: torch.Tensor, clip: float) -> Terms:
    """Two states with two actions each. In the first, 0.25 and 0.75, the second action was taken with 0.5; in the second,
    0.5 and 0.5, the first with 0.625."""
    steps = Steps(
        state_of=torch.tensor([0, 0, 1, 1]),
        chosen=torch.tensor([1, 2]),
        reference=torch.tensor([0.0, 0.0, 0.0, math.log(3.0)]),
        old=torch.tensor([0.5, 0.625]).log(),
        advantages=torch.tensor([2.0, -1.0]),
        returns=torch.tensor([1.0, 0.0]),
    )
    return terms_of(logits, values, steps, clip)


def test_the_terms_of_the_loss_by_hand() -> None:
    logits = torch.tensor([0.0, math.log(3.0), 2.0, 2.0], requires_grad=True)
    terms = two_steps(logits, torch.tensor([0.5, 2.0]), clip=0.2)
    # ratios 1.5 and 0.8; of the first min(1.5 * 2, 1.2 * 2), of the second min(-0.8, -0.8)
    assert terms.policy.item() == pytest.approx(-(2.4 - 0.8))
    assert terms.value.item() == pytest.approx(0.25 + 4.0)
    first, second = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), math.log(2.0)
    assert terms.entropy.item() == pytest.approx(first + second)
    kl = (math.log(2.0) - first) + 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert terms.kl.item() == pytest.approx(kl)
    assert Coefficients(0.2, 0.5, 0.1, 0.3).loss(terms).item() == pytest.approx(
        -1.6 + 0.5 * 4.25 - 0.1 * terms.entropy.item() + 0.3 * kl
    )


def test_a_step_beyond_the_clip_has_no_gradient() -> None:
    logits = torch.tensor([0.0, math.log(3.0), 2.0, 2.0], requires_grad=True)
    terms = two_steps(logits, torch.zeros(2), clip=0.2)
    (gradient,) = torch.autograd.grad(terms.policy, logits)
    # d(0.8 of the second) / d logits = A * -ratio * p(1 - p) ...: -(-1) * 0.8 * (0.5, -0.5)
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 0.4, -0.4])
    assert int(two_steps(logits, torch.zeros(2), clip=0.1).clipped) == 2


@pytest.mark.parametrize("reward", ["paper", "log_speedup", "progress"])
@pytest.mark.parametrize("on_failure", ["stay", "end"])
def test_episodes_of_a_rollout_are_those_of_one_alone(reward: RewardName, on_failure: OnFailure) -> None:
    trees = [hand_tree(), detour_tree()]
    forest = forest_of(trees)
    rules = Rules(reward, 0.02, 4, on_failure)
    starts = np.repeat(forest.roots, 30)
    rollout = roll(forest, policy_table(forest, TableScorer(forest)), starts, rules, np.random.default_rng(3))
    environment = TreeEnvironment(forest, rules)
    for episode in range(len(starts)):
        _, info = environment.reset(options={"tree": episode // 30})
        ended = cut_off = False
        for step in np.flatnonzero(rollout.valid[episode]):
            node = rollout.nodes[episode, step : step + 1]
            assert node[0] - starts[episode] == info["node"] and not ended and not cut_off
            edge = forest.batch(node).edges[rollout.places[episode, step]]
            _, reward_, ended, cut_off, info = environment.step(int(edge - forest.start[node[0]]))
            assert rollout.rewards[episode, step] == pytest.approx(reward_)
        assert ended or cut_off
        assert 2 ** rollout.best[episode] == pytest.approx(info["best_speedup"])


def test_what_a_forest_says_is_what_its_trees_say() -> None:
    trees = [hand_tree(), detour_tree()]
    forest = forest_of(trees)
    batch = forest.batch(np.array([6, 2, 0]))  # the second tree's root; a failure; the first tree's root
    assert batch.counts.tolist() == [4, 0, 4]
    assert [forest.action(edge) for edge in batch.edges] == [
        *trees[1].nodes[0].actions,
        *(trees[0].nodes[0].actions[at] for at in (0, 1, 3, 4)),
    ]
    seen, actions = trees[0].observation(0), trees[0].nodes[0].actions
    rows = action_features(seen, actions, None, trees[0].children_of(0), only=[0, 1, 3, 4])
    assert np.array_equal(batch.part(1, 3).actions, matrix(rows, forest.action_names))
    assert forest.children[forest.start[6]] == 7
    assert np.array_equal(batch.observations[2], matrix([observation_features(seen, None)], forest.state_names)[0])


def test_values_of_actions_by_hand() -> None:
    forest = forest_of([detour_tree()])
    q = action_values(forest, gamma=0.5, failure=-0.5)
    # at 2: to 4 it gains 3, to 5 it loses 1 (STOP there has the value 0); at 0: 1 gains 1, 2 gains 0 and then 0.5 * 3
    assert q[forest.batch(np.array([2])).edges].tolist() == pytest.approx([1.5, -0.5, 0.0])
    assert q[forest.batch(np.array([0])).edges].tolist() == pytest.approx([0.5, 0.75, -0.5, 0.0])
    targets = targets_of(forest, Pretraining(gamma=0.5, sharpness=2.0, heuristic_weight=0.0))
    weights = np.exp(2.0 * np.array([0.5, 0.75, -0.5, 0.0]))
    assert targets.probs[forest.batch(np.array([0])).edges].tolist() == pytest.approx(
        (weights / weights.sum()).tolist()
    )
    assert targets.logits[forest.batch(np.array([2])).edges].tolist() == pytest.approx([3.0, -1.0, 0.0])
    mixed = targets_of(forest, Pretraining(gamma=0.5, sharpness=2.0, heuristic_weight=1.0)).probs[
        forest.batch(np.array([0])).edges
    ]
    heuristic = np.asarray(Heuristic().prior(forest.observation(0), forest.legal(0)))
    assert mixed.tolist() == pytest.approx((weights * heuristic / (weights * heuristic).sum()).tolist(), rel=1e-5)
    assert targets.gains[:3].tolist() == pytest.approx([0.75, 0.0, 1.5])


def test_the_terms_of_the_pretraining_by_hand() -> None:
    forest = forest_of([detour_tree()])
    scorer, targets = (
        TableScorer(forest),
        targets_of(forest, Pretraining(gamma=0.5, sharpness=2.0, heuristic_weight=0.0)),
    )
    batch = forest.batch(np.array([2]))  # targets 3, -1 and 0; the scorer has 0
    loss, error = pretraining_terms(scorer, batch, targets, absolute=0.5)
    assert loss.item() == pytest.approx(math.log(3.0))  # not anchored: the cross-entropy to any distribution
    assert error.item() == pytest.approx(1.5**2)
    scorer.anchored = True
    assert pretraining_terms(scorer, batch, targets, 0.5)[0].item() == pytest.approx(
        math.log(3.0) + 0.5 * (2.5 + 0.5 + 0.0)
    )


def quick(**changes: Any) -> TrainSettings:
    given = {
        "iterations": 24,
        "episodes": 64,
        "steps": 4,
        "random_start_prob": 0.0,
        "pretraining": Pretraining(epochs=0),
    }
    return TrainSettings(**{**given, "validate_every": 10, "checkpoint_every": 3, **changes})


def unwatched(unit: int, units: int, row: Row) -> None:
    """Nobody looks."""


def trained(
    folder: Path, algorithm: Algorithm, settings: TrainSettings, at_once: int = 0
) -> tuple[Forest, TableScorer, list[Row]]:
    forest = forest_of([detour_tree()])
    scorer = TableScorer(forest, at_once)
    trainer = Trainer(scorer, algorithm, settings, forest, forest, folder, {"seed": settings.seed})
    return forest, scorer, trainer.run(unwatched).history


@pytest.mark.parametrize(
    "algorithm",
    [Ppo(lr=0.1, kl_coef=0.0, minibatch=64), Grpo(lr=0.1, kl_coef=0.0, group_size=8, minibatch=64)],
    ids=["ppo", "grpo"],
)
def test_the_best_way_is_found(algorithm: Algorithm, tmp_path: Path) -> None:
    forest, scorer, history = trained(tmp_path, algorithm, quick())
    table = policy_table(forest, scorer)
    assert roll(forest, table, forest.roots, Rules("progress", 0.02, 4), None).best.tolist() == [3.0]
    assert history[-1]["greedy"] == 1.0
    assert history[-1]["score"] > history[0]["score"]
    batch = forest.batch(forest.roots)
    table.need(forest.roots)
    assert np.exp(log_softmax_np(table.logits[batch.edges], batch.counts))[1] > 0.9


def test_the_pretraining_alone_finds_the_best_way(tmp_path: Path) -> None:
    settings = quick(iterations=0, pretraining=Pretraining(epochs=40, lr=0.1, sharpness=8.0))
    _, scorer, history = trained(tmp_path, Ppo(), settings)
    assert history[-1]["greedy"] == 1.0
    values = scorer.weights["values"].detach()
    assert values[2] > values[0] > values[1]


def test_kl_keeps_the_policy_near_the_reference(tmp_path: Path) -> None:
    free = trained(tmp_path / "a", Ppo(lr=0.1, kl_coef=0.0), quick(iterations=15))[2][-1]["kl"]
    held = trained(tmp_path / "b", Ppo(lr=0.1, kl_coef=5.0), quick(iterations=15))[2][-1]["kl"]
    assert held < 0.2 * free


class Cut(Exception):
    """Stands for a process that is ended."""


@pytest.mark.parametrize("cut", [2, 4, 7])  # within the pretraining, at its end, and after it
def test_a_resumed_training_ends_with_the_same_weights(cut: int, tmp_path: Path) -> None:
    settings = quick(iterations=6, pretraining=Pretraining(epochs=4, lr=0.05), checkpoint_every=1)
    algorithm = Ppo(lr=0.05, minibatch=64)
    _, whole, history = trained(tmp_path / "whole", algorithm, settings)

    def stop(unit: int, units: int, row: Row) -> None:
        if unit == cut + 1:
            raise Cut

    forest = forest_of([detour_tree()])
    first = Trainer(TableScorer(forest), algorithm, settings, forest, forest, tmp_path / "cut", {"seed": 0})
    with pytest.raises(Cut):
        first.run(stop)
    _, again, resumed = trained(tmp_path / "cut", algorithm, settings)
    assert all(torch.equal(whole.weights[name], again.weights[name]) for name in whole.weights)
    timeless = [[{**row, "seconds": 0} for row in rows] for rows in (history, resumed)]
    assert timeless[0] == timeless[1]


def test_small_batches_make_the_same_step(tmp_path: Path) -> None:
    settings, algorithm = quick(iterations=3, pretraining=Pretraining(epochs=2)), Ppo(lr=0.01)
    _, whole, _ = trained(tmp_path / "whole", algorithm, settings)
    _, parts, _ = trained(tmp_path / "parts", algorithm, settings, at_once=3)
    for name in whole.weights:
        assert torch.allclose(whole.weights[name], parts.weights[name], atol=1e-4)


def test_a_folder_holds_one_training(tmp_path: Path) -> None:
    trained(tmp_path, Ppo(), quick(iterations=0))
    with pytest.raises(ConfigError, match="seed=0, this one has 1"):
        trained(tmp_path, Ppo(), quick(iterations=0, seed=1))
    with pytest.raises(ConfigError, match=r"with algorithm\.clip=None, this one has 0\.2: choose another out="):
        read_checkpoint(tmp_path, {"seed": 0, "algorithm": {"clip": 0.2}}, "cpu")


def test_a_validation_by_hand() -> None:
    forest = forest_of([detour_tree()])
    scorer = TableScorer(forest)
    with torch.no_grad():
        scorer.weights["logits"][forest.start[0] + 1] = 9.0  # to 2, then, of equals, to 4
    table = policy_table(forest, scorer)
    curves = [replay_search(forest.trees[0], Greedy(), priors, 4) for priors in priors_by_tree(forest, table)]
    assert curves[0].values[:2] == (0.0, 0.0)
    found = validate(forest, table, budget=4, seeds=3)
    assert found.greedy == 1.0
    assert 0.0 < found.score < 1.0 and 3.0 <= found.evaluations <= 5.0
    assert score(curves, 2) == 0.0 and mean_evaluations(curves, 2) == 3.0


def test_without_an_action_space_what_is_not_legal_fails() -> None:
    tree = detour_tree()
    opened = open_space(tree, seed=0)
    added = opened.nodes[4].actions[1:]  # it had STOP alone
    assert sorted(each.key for each in added) == sorted(each.key for node in tree.nodes for each in node.actions[:-1])
    assert all(opened.values[child] == VALUE_FLOOR for child in opened.nodes[4].children[1:])
    assert len(set(opened.nodes[4].children[1:])) == len(added)
    assert [node.children[: len(node.actions)] for node in opened.nodes[:7]] != [node.children for node in tree.nodes]
    assert open_space(tree, seed=0).nodes[0].actions == opened.nodes[0].actions
