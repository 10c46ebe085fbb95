"""The environment and the replayed searches, on a tree by hand and on one that was recorded."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtmc.agents.policies.heuristic import Uniform
from mtmc.errors import ConfigError
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.protocols import Observation
from mtmc.rl import forest as forests
from mtmc.rl.environment import MASKED, Episodes, Rules, TreeEnvironment
from mtmc.rl.forest import forest_of
from mtmc.rl.record import record_run
from mtmc.rl.replays import Curve, priors_of, replay_search
from mtmc.rl.rewards import RewardName
from mtmc.rl.trees import RecordedTree, trees_of
from mtmc.search import Budget, SearchResult, search
from mtmc.search.result import evaluation_order
from mtmc.search.strategies import BestOfN, Greedy, Mcts
from mtmc.store import Store
from mtmc.task import Task, Variant
from tests.rl.recorded import TASK_TEXT, hand_tree, node


def environment(reward: RewardName = "paper", decay: float = 0.0, **rules: Any) -> TreeEnvironment:
    return TreeEnvironment(forest_of([hand_tree()]), Rules(reward, decay, **rules))


def test_an_episode_by_hand() -> None:
    made = environment(decay=0.02)
    observation, info = made.reset(seed=0)
    assert info == {"tree": "by-hand", "node": 0, "speedup": 1.0, "best_speedup": 1.0, "masked": False}
    assert observation["mask"].tolist() == [1, 1, 0, 1, 1]  # the third is unknown, the last is STOP
    observation, reward, ended, cut_off, info = made.step(1)  # fails: the state stays
    assert (info["node"], reward, ended, cut_off) == (0, pytest.approx(-1.0 - 0.02), False, False)
    observation, reward, *_ = made.step(3)  # as fast as before
    assert reward == pytest.approx(0.6 - 0.04)
    observation, reward, *_, info = made.step(0)
    assert (reward, info["node"], info["speedup"]) == (pytest.approx(1.6 - 0.06), 1, 2.0)
    _, reward, ended, _, info = made.step(0)
    assert (reward, ended, info["best_speedup"]) == (pytest.approx(1.6 - 0.08), False, 4.0)
    _, reward, ended, cut_off, _ = made.step(0)  # STOP
    assert (reward, ended, cut_off) == (0.0, True, False)


def test_rewards_of_speed() -> None:
    made = environment("log_speedup")
    made.reset(seed=0)
    assert [made.step(action)[1] for action in (3, 1, 0)] == [0.0, -1.0, 0.0]  # 8 -> 8 -> 16 -> STOP
    made = environment("progress")
    made.reset(seed=0)
    assert [made.step(action)[1] for action in (0, 1, 0, 0)] == [1.0, 0.0, 0.0, 1.0]  # 4, 8, 4, 2 ms


def test_a_masked_action_changes_nothing() -> None:
    made = environment(decay=0.1)
    made.reset(seed=0)
    for step, action in enumerate((2, 4 + 1), 1):  # unknown; beyond the legal ones
        _, reward, ended, _, info = made.step(min(action, 4) if action == 2 else action)
        assert (reward, ended, info["node"], info["masked"]) == (pytest.approx(MASKED - 0.1 * step), False, 0, True)


def test_a_failure_may_end_an_episode_and_steps_may_run_out() -> None:
    made = environment(on_failure="end")
    made.reset(seed=0)
    assert made.step(1)[2:4] == (True, False)
    made = environment(steps=2)
    made.reset(seed=0)
    assert [made.step(action)[2:4] for action in (0, 1)] == [(False, False), (False, True)]


def test_what_has_ended_stays_as_it_is() -> None:
    made = environment(decay=0.1)
    made.reset(seed=0)
    made.step(4)  # STOP
    assert made.step(0)[1:4] == (pytest.approx(MASKED - 0.2), True, False)


def test_episodes_side_by_side_do_not_mind_each_other() -> None:
    forest = forest_of([hand_tree(), hand_tree()])
    episodes = Episodes(forest, np.array([0, 6, 3]), Rules("progress", 0.0))
    edges = forest.start[[0, 6, 3]] + np.array([0, 1, 1])
    assert episodes.step(edges).tolist() == [1.0, 0.0, 0.0]  # 8 -> 4; 8 -> fails; 8 -> 16 ms
    assert episodes.node.tolist() == [1, 6, 5]
    edges = forest.start[episodes.node] + np.array([0, 4, 0])
    assert episodes.step(edges).tolist() == [1.0, 0.0, 0.0]  # 4 -> 2; STOP; STOP
    assert episodes.live.tolist() == [True, False, False]
    assert episodes.step(forest.start[episodes.node[:1]]).tolist() == [0.0]  # those that live are stepped alone
    assert (8.0 / episodes.best_ms).tolist() == [4.0, 1.0, 1.0]


def test_settings_are_checked() -> None:
    forest = forest_of([hand_tree()])
    with pytest.raises(ConfigError, match="no version of these trees has legal actions"):
        TreeEnvironment(forest_of([replace(hand_tree(), nodes=(node(0, None, None, []),))]))
    with pytest.raises(ConfigError, match="no reward 'fame'"):
        environment("fame")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="most_actions cannot be 2"):
        TreeEnvironment(forest, most_actions=2)
    wide = TreeEnvironment(forest, most_actions=9)
    assert wide.reset(seed=0)[0]["actions"].shape == (9, len(forest.action_names))


def test_gymnasium_finds_nothing_wrong() -> None:
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    checker.check_env(environment(), skip_render_check=True)


def test_a_step_computes_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    made = environment()

    def computed(*given: Any, **more: Any) -> Any:
        raise AssertionError("features are computed once, before the first step")

    for name in ("observation_features", "action_features"):
        monkeypatch.setattr(forests, name, computed)
    observation, _ = made.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        observation, _, ended, cut_off, _ = made.step(int(rng.choice(np.flatnonzero(observation["mask"]))))
        if ended or cut_off:
            observation, _ = made.reset()
    assert observation["observation"].shape == made.observation_space["observation"].shape


def flat(tree: RecordedTree) -> list[list[float]]:
    """Priors that like earlier actions better."""
    return [
        [2.0 ** -(at + 1) / (1 - 2.0 ** -len(node.actions)) for at in range(len(node.actions))] for node in tree.nodes
    ]


def test_a_greedy_search_by_hand() -> None:
    tree = hand_tree()
    curve = replay_search(tree, Greedy(), flat(tree), budget=10)
    assert curve.values == (0.0, 1.0, 2.0)  # the root, 1, 4; there STOP is all that is known
    assert curve.best == 2.0
    assert curve.evaluations_to() == 3
    assert curve.evaluations_to(0.5) == 2
    assert [curve.at(count) for count in (1, 2, 3, 9)] == [0.0, 1.0, 2.0, 2.0]
    assert Curve((0.0, 1.0), 2.0).evaluations_to() is None


def test_a_replay_spends_no_more_than_its_budget_and_finds_everything_in_the_end() -> None:
    tree = hand_tree()
    for strategy in (Mcts(), BestOfN()):
        assert len(replay_search(tree, strategy, flat(tree), budget=3).values) == 3
        whole = replay_search(tree, strategy, flat(tree), budget=100)
        assert len(whole.values) == len(tree.nodes)  # a version that was met costs nothing the second time
        assert whole.values[-1] == tree.best_value


def test_equal_priors_are_tried_in_an_order_that_the_seed_draws() -> None:
    tree = hand_tree()
    equal = priors_of(tree, Uniform())
    curves = {replay_search(tree, Mcts(), equal, 6, seed).values for seed in range(12)}
    assert len(curves) > 1
    assert replay_search(tree, Mcts(), equal, 6, 3) == replay_search(tree, Mcts(), equal, 6, 3)
    with pytest.raises(ConfigError, match="do not fit tree by-hand"):
        replay_search(tree, Mcts(), equal[1:], 6)


@pytest.fixture(scope="module")
def whole_tree(tmp_path_factory: pytest.TempPathFactory) -> RecordedTree:
    """All that can be done with the fake coder in three steps."""
    from mtmc.rl.dataset import table_of

    folder = tmp_path_factory.mktemp("whole") / "run"
    fake_search(FakeStrategy(), folder, 1000)
    return trees_of({name: table_of(name, rows) for name, rows in record_run(folder).tables.items()})[0]


def fake_search(strategy: object, folder: Path, evaluations: int) -> SearchResult:
    return search(
        Task("fake", TASK_TEXT, Variant("full"), Variant("small")),
        strategy=strategy,  # type: ignore[arg-type]
        policy=FakePolicy(),
        coder=FakeCoder(width=4, refuses=0.0, usd=0.0),
        evaluator=FakeEvaluator(failing=0.0),
        budget=Budget(evaluations=evaluations, depth=3),
        out=folder,
        dumps=False,
    )


@pytest.mark.parametrize("strategy", [Mcts(), Greedy()], ids=["mcts", "greedy"])
def test_a_replay_takes_the_way_of_the_live_search(
    strategy: Mcts | Greedy, whole_tree: RecordedTree, tmp_path: Path
) -> None:
    live = fake_search(strategy, tmp_path / "live", 25)
    store = Store.read(tmp_path / "live")
    values = [math.log2(live.tree.speedup(each) or 0) for each in evaluation_order(store)]
    store.close()
    # The priors of the live search, which read the texts of versions.
    by_version = {each.hash: each for each in fake_search(FakeStrategy(), tmp_path / "all", 1000).tree}
    priors = [
        FakePolicy().prior(whole_observation(whole_tree, each.id, by_version[each.version].source), each.actions)
        if each.actions
        else []
        for each in whole_tree.nodes
    ]
    curve = replay_search(whole_tree, strategy, priors, 25)
    assert curve.values == pytest.approx(list(itertools.accumulate(values, max)))


def whole_observation(tree: RecordedTree, node_id: int, source: str) -> Observation:
    return replace(tree.observation(node_id), source=source)


def test_every_seed_s_replay_finds_something(whole_tree: RecordedTree) -> None:
    priors = priors_of(whole_tree, Uniform())
    for seed in range(10):
        assert replay_search(whole_tree, Mcts(), priors, 60, seed).values[-1] > 0
