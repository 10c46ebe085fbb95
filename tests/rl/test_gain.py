"""The model of gains: its trees by hand, folds by task, its figures by hand, and from a folder of trees to a search."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtmc.action import STOP_KIND
from mtmc.agents.policies.learned.edits import children_of
from mtmc.agents.policies.learned.gain.boosted import Boosted, read_boosted, write_boosted
from mtmc.agents.policies.learned.gain.facts import gain_features
from mtmc.agents.policies.learned.gain.model import NOTHING, WEIGHTS, expected, load_gains
from mtmc.cli import main
from mtmc.conf.trainee import GAIN, compose_trainee
from mtmc.errors import ConfigError, RunError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.hardware import hardware
from mtmc.rl.dataset import write_dataset
from mtmc.rl.gain.crossed import crossed, figures, rank_correlation
from mtmc.rl.gain.data import Rows, rows_of, telling
from mtmc.rl.gain.fit import Tree, as_boosted, binned, fit, grown, in_bins, task_folds
from mtmc.rl.gain.settings import GainSettings
from mtmc.rl.record import Record, merged, record_run
from mtmc.rl.replays import gains_of, priors_of, replay_search
from mtmc.rl.schema import split_of
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.search import resume, search
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.strategies import BestFirst, Mcts
from mtmc.store import Store
from mtmc.task import Task, Variant
from mtmc.tree import source_hash
from tests.rl.recorded import TASK_TEXT, Drawn, Spy, hand_tree, run_of

TREES = Path(__file__).parents[2] / "results" / "trees_h200"
SMALL = GainSettings(members=2, trees=6, depth=3, leaf=2, rows=0.8, columns=0.8, spread_trees=3, inner=2, folds=3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Spy]]:
    """Recorded trees of four tasks, three to learn from and one not; and what the policy of each run saw live."""
    pytest.importorskip("pyarrow", reason="the extra rl is not installed")
    folder = tmp_path_factory.mktemp("trees")
    records: list[Record] = []
    spies: list[Spy] = []
    wanted = {"train": 3, "validation": 1}
    for rows in range(4096, 12288, 64):
        text = TASK_TEXT.replace("4096", str(rows))
        split = split_of(source_hash(text))
        if wanted.get(split, 0):
            wanted[split] -= 1
            spies.append(Spy())
            run_of(Task(f"rows{rows}", text, Variant("full"), Variant("small"), ()), folder / f"{rows}", spies[-1], 9)
            records.append(record_run(folder / f"{rows}"))
    assert not any(wanted.values())
    write_dataset(merged(records), folder / "data")
    return folder / "data", spies


@pytest.fixture(scope="module")
def trees(made: tuple[Path, list[Spy]]) -> list[RecordedTree]:
    return load_trees(made[0])


def by_hand() -> Boosted:
    """Two members and the spread's, of one tree of depth 1 each: on feature 0 at 0.5, on 1 at 2, on nothing."""
    return Boosted(
        feature=np.asarray([[0], [1], [0]], np.int16),
        threshold=np.asarray([[0.5], [2.0], [np.inf]], np.float32),
        leaf=np.asarray([[-1.0, 1.0], [0.0, 4.0], [0.25, 9.0]], np.float32),
        member=np.asarray([0, 1, 2], np.int16),
        base=np.asarray([0.5, 0.0, 0.75], np.float32),
        state_names=("a",),
        action_names=("b",),
    )


def test_a_model_by_hand() -> None:
    rows = np.asarray([[0.5, 2.0], [0.6, 2.1], [0.6, 0.0]], np.float32)
    mean, spread = by_hand().predict(rows)
    # member 0: 0.5 - 1, 0.5 + 1, 0.5 + 1; member 1: 0, 4, 0; the spread's: 0.75 + 0.25, whatever there is
    assert mean.tolist() == pytest.approx([(-0.5 + 0.0) / 2, (1.5 + 4.0) / 2, (1.5 + 0.0) / 2])
    assert spread.tolist() == pytest.approx([math.sqrt(math.pi / 2)] * 3)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_boosted(by_hand(), tmp_path / "model.npz", {"hash": "0"})
    again, rows = read_boosted(tmp_path / "model.npz"), np.asarray([[0.7, 1.0]], np.float32)
    assert again.predict(rows)[0] == by_hand().predict(rows)[0] and again.action_names == ("b",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"action_names": ()}, "compares feature 1, but names 1"),
        ({"leaf": np.zeros((3, 3), np.float32)}, "shapes that make no trees"),
        ({"leaf": np.full((3, 2), np.nan, np.float32)}, "are no numbers"),
        ({"member": np.asarray([0, 2, 1], np.int16)}, "trees of other members than its 3"),
        ({"member": np.asarray([0, 0, 2], np.int16)}, "trees of other members than its 3"),
        ({"feature": np.zeros((3, 2), np.int16), "threshold": np.zeros((3, 2)), "leaf": np.zeros((3, 3))}, "2 inner"),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    write_boosted(replace(by_hand(), **change), tmp_path / "model.npz", {})  # type: ignore[arg-type]
    with pytest.raises(RunError, match=rf"the model of gains in .*model.npz .*{said}.*: train it again"):
        read_boosted(tmp_path / "model.npz")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no model")
    with pytest.raises(RunError, match=r"text.npz holds no model of gains"):
        read_boosted(tmp_path / "text.npz")
    with pytest.raises(RunError, match=r"no model of gains at .*nowhere.npz: train one with mtmc train gain=boosted"):
        load_gains(str(tmp_path / "nowhere.npz"))


def drawn(tasks: int = 6, each: int = 60, seed: int = 0) -> Rows:
    """Gains of 1 where feature a is above 0.3 and b is 1, of -0.5 elsewhere, with noise."""
    rng = np.random.default_rng(seed)
    count = tasks * each
    features = np.stack([rng.random(count), rng.integers(0, 2, count), rng.random(count)], 1).astype(np.float32)
    gains = np.where((features[:, 0] > 0.3) & (features[:, 1] == 1), 1.0, -0.5) + rng.normal(0, 0.05, count)
    task, node = np.repeat(np.arange(tasks), each), np.tile(np.repeat(np.arange(each // 6), 6), tasks)
    return Rows(features, gains, task, node, np.tile(np.arange(6), count // 6), ("a", "b"), ("heuristic",))


def test_trees_learn_what_is_there_and_the_file_says_the_same_as_the_bins() -> None:
    rows, settings = drawn(), replace(SMALL, trees=60, lr=0.2, columns=1.0)
    given = binned(rows.features, settings.bins)
    member = grown(given.bins, rows.gains, settings, settings.trees, np.random.default_rng(0))
    model = as_boosted([member, member], given, rows)
    new = drawn(seed=1)
    assert model.predict(new.features)[0] == pytest.approx(
        member.predict(in_bins(new.features, given.edges, given.used.tolist())), abs=1e-5
    )
    assert np.abs(model.predict(new.features)[0] - new.gains).mean() < 0.1


def test_one_split_by_hand() -> None:
    """Four rows, two of 0 and two of 1: the split is between, and a leaf adds lr G / (n + shrink)."""
    settings = GainSettings(depth=1, leaf=1, rows=1.0, columns=1.0, shrink=2.0, lr=0.5, huber=9.0)
    given = binned(np.asarray([[0.0], [0.0], [4.0], [4.0]], np.float32), settings.bins)
    [tree] = grown(given.bins, np.asarray([0.0, 0.0, 1.0, 1.0]), settings, 1, np.random.default_rng(0)).trees
    assert isinstance(tree, Tree) and given.edges[0].tolist() == [2.0] and tree.cut.tolist() == [0]
    assert tree.leaf.tolist() == pytest.approx([0.5 * -1.0 / 4, 0.5 * 1.0 / 4])


def test_a_feature_that_never_differs_and_a_constant_gain_split_nothing() -> None:
    settings = replace(SMALL, rows=1.0, columns=1.0)
    given = binned(np.asarray([[1.0, 0.0], [1.0, 1.0]] * 4, np.float32), settings.bins)
    assert given.used.tolist() == [1]
    member = grown(given.bins, np.full(8, 0.25), settings, 3, np.random.default_rng(0))
    assert all((tree.column == -1).all() for tree in member.trees) and member.predict(given.bins).tolist() == [0.25] * 8


def test_the_same_seed_gives_the_same_model() -> None:
    one, other, third = fit(drawn(), SMALL, 0), fit(drawn(), SMALL, 0), fit(drawn(), SMALL, 1)
    for name in ("feature", "threshold", "leaf", "base"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.leaf, third.leaf)


def test_no_task_is_in_training_and_test() -> None:
    rows = drawn(tasks=7)
    held_out = task_folds(rows, 3, 0)
    assert np.sum(held_out, axis=0).tolist() == [1] * len(rows)
    assert all(not set(rows.task[each]) & set(rows.task[~each]) for each in held_out)
    with pytest.raises(ConfigError, match="2 tasks are too few for 3 folds"):
        task_folds(drawn(tasks=2), 3, 0)


def test_models_of_folds_have_not_seen_their_tasks() -> None:
    """The gains of one task are turned round: were it seen, its own model would know."""
    rows = drawn(tasks=6)
    rows = replace(rows, gains=np.where(rows.task == 4, -4 * rows.gains, rows.gains))
    [fold] = [each for each in crossed(rows, replace(SMALL, trees=60, lr=0.2), lambda text: None) if 4 in each.tasks]
    mine = rows.task == 4
    assert np.corrcoef(fold.model.predict(rows.features[mine])[0], rows.gains[mine])[0, 1] < -0.9


def test_figures_by_hand() -> None:
    features = np.asarray([[0.0], [1.0], [2.0], [5.0]], np.float32)
    rows = Rows(
        features,
        np.asarray([1.0, 0.0, -1.0, 9.0]),
        np.asarray([0, 0, 0, 1]),
        np.asarray([7, 7, 7, 7]),
        np.asarray([0, 1, 2, 0]),
        (),
        ("heuristic",),
    )
    found = figures(rows, np.asarray([0.0, 0.5, -1.0, 3.0]), np.full(4, 0.6), clip=3.0)
    # off by -1, 0.5, 0 and 0 (9 counts as 3); the one version with three actions: best 1, taken 0, by the heuristic -1
    assert found.rows == 4 and found.versions == 1
    assert found.error == pytest.approx(math.sqrt(1.25 / 4)) and found.nothing == pytest.approx(math.sqrt(11 / 4))
    assert found.explained == pytest.approx(1 - (1.25 / 4) / np.var([1.0, 0.0, -1.0, 3.0]))
    assert (found.lost, found.lost_heuristic, found.lost_drawn) == pytest.approx((1.0, 2.0, 1.0))
    assert found.order == pytest.approx(0.5) and found.within == 0.75 and found.within_two == 1.0
    assert rank_correlation(np.asarray([1.0, 1.0]), np.asarray([1.0, 2.0])) is None


def test_rows_are_the_transitions_between_right_versions(trees: list[RecordedTree]) -> None:
    rows = rows_of(trees)
    wanted = {}
    for number, tree in enumerate(trees):
        for node in tree.nodes:
            for at, (action, child) in enumerate(zip(node.actions, node.children, strict=True)):
                if child >= 0 and action.kind != STOP_KIND and tree.nodes[child].outcome.runtime_ms is not None:
                    assert node.outcome.runtime_ms is not None
                    ratio = node.outcome.runtime_ms / tree.nodes[child].outcome.runtime_ms  # type: ignore[operator]
                    wanted[number, node.id, at] = math.log2(ratio)
    found = {
        tuple(map(int, key)): value for *key, value in zip(rows.task, rows.node, rows.action, rows.gains, strict=True)
    }
    assert found == pytest.approx(wanted) and len(wanted) > 20
    assert not telling(hand_tree(), hand_tree().root), "nothing is known of a version without a plan"
    with pytest.raises(ConfigError, match="1 trees have no transition"):
        rows_of([hand_tree()])


def test_a_live_search_sees_the_features_that_were_learned_from(
    made: tuple[Path, list[Spy]], trees: list[RecordedTree]
) -> None:
    compared = 0
    for spy in made[1]:
        for live, actions in spy.seen:
            [tree] = [each for each in trees if each.name == live.task.name]
            [node] = [each for each in tree.nodes if each.plan == live.plan and each.actions == actions]
            known = telling(tree, node)
            recorded = gain_features(tree.observation(node.id), actions, tree.graph, tree.children_of(node.id), known)
            assert gain_features(live, actions, None, children_of(live), known) == recorded
            compared += len(known)
    assert compared > 20


def test_what_bounds_a_version_is_told(trees: list[RecordedTree]) -> None:
    tree = trees[0]
    seen = tree.observation(0)
    known = telling(tree, tree.root)
    state, rows = gain_features(seen, tree.root.actions, tree.graph, tree.children_of(0), known)
    # `Drawn`: the root takes 4 ms and reaches 0.2 of the roofline; three torch calls, two tensors read and one written
    assert state["above_floor"] == pytest.approx(math.log2(1 / 0.2)) and state["limit:latency"] == 1.0
    gpu, launches = hardware(tree.hardware), 3
    assert state["share_launches"] == pytest.approx(launches * gpu.launch_us / 1e3 / 4.0)
    assert all(0 <= row["pays"] <= state["above_floor"] + 1e-6 for row in rows)
    assert len({row["pays"] for row in rows}) > 1


def test_stop_and_what_nobody_knows_is_expected_to_change_nothing(trees: list[RecordedTree]) -> None:
    tree, model = trees[0], fit(rows_of(trees), replace(SMALL, inner=2), 0)
    seen, actions = tree.observation(0), tree.root.actions
    found = expected(model, seen, actions, tree.graph, tree.children_of(0))
    assert found is not None and len(found) == len(actions) and found[-1] == NOTHING
    planned = [child for child in tree.root.children if child >= 0 and tree.nodes[child].plan is not None]
    assert sum(each != NOTHING for each in found) == len(planned) > 1
    assert all(each.spread >= 0 for each in found)
    assert expected(model, seen, actions, tree.graph, lambda action: None) == [NOTHING] * len(actions)
    assert expected(model, replace(seen, plan=None), actions) is None
    assert gains_of(replace(tree, graph=None), model) is None


def test_a_replay_goes_by_gains(trees: list[RecordedTree]) -> None:
    """One who knows each gain takes the best action first; one who has them turned round the worst."""
    tree = trees[0]
    even = [[1.0 / max(1, len(node.actions))] * len(node.actions) for node in tree.nodes]
    true = [[0.0 if c < 0 else tree.values[c] - tree.values[node.id] for c in node.children] for node in tree.nodes]
    best, worst = (
        replay_search(tree, strategy, even, 2, 0, [[sign * each for each in some] for some in true]).nodes[1]
        for strategy, sign in ((BestFirst(), 1), (BestFirst(), -1))
    )
    tried = [child for child in tree.root.children if child >= 0]
    assert tree.values[best] == max(tree.values[child] for child in tried) > tree.values[worst]


def test_the_command_trains_a_model_for_a_search(
    made: tuple[Path, list[Spy]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data=[{made[0]}]", "gain=boosted", f"out={tmp_path / 'gain'}"]
    words += [f"{name}={value}" for name, value in dataclasses.asdict(SMALL).items() if name != "data"]
    assert main(["train", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["scores"]) == {"cross-validation", "held out"} and answer["scores"]["held out"]["rows"] > 0
    file = tmp_path / "gain" / "best" / "weights.npz"
    card = file.with_name("model_card.md").read_text()
    assert "    mtmc train data=[" in card and "the 3 trees for training" in card and "| trees | 6 |" in card
    task = Task("told", TASK_TEXT, Variant("full"), Variant("small"), ())
    given = {"coder": "rewriter", "evaluator": Drawn(), "budget": 3, "repairs": 0, "dumps": False}
    gains = {}
    for spreads in (0.0, 1.0):
        agents = AgentSettings(gain=str(file), gain_spreads=spreads)
        out = tmp_path / f"run{spreads}"
        search(task, strategy="best_first", policy="uniform", agents=agents, out=out, **given)  # type: ignore[arg-type]
        store = Store.read(out)
        gains[spreads] = store.legal_actions(0).gains
        store.close()
    assert gains[0.0] is not None and gains[1.0] is not None
    assert gains[0.0][-1] == 0.0 and len(set(gains[0.0])) > 1
    assert all(more >= plain for more, plain in zip(gains[1.0], gains[0.0], strict=True)) and gains[0.0] != gains[1.0]
    assert load_gains(str(file)).trees == 2 * 6 + 3
    again = resume(tmp_path / "run0.0", evaluator=Drawn(), budget=5)
    store = Store.read(tmp_path / "run0.0")
    told = [store.legal_actions(node.id) for node in again.tree]
    store.close()
    assert again.evaluations == 5 and all((each.gains is not None) == bool(each.actions) for each in told)


def test_it_goes_before_what_the_policy_expects(tmp_path: Path) -> None:
    """Of versions without a plan it expects nothing, whatever the policy says."""
    fakes = {"policy": FakePolicy(expects=True), "coder": FakeCoder(), "evaluator": FakeEvaluator(), "dumps": False}
    strategy = Mcts(untried="predicted")
    for name, agents in (("policy", AgentSettings()), ("model", AgentSettings(gain="trained"))):
        search(FAKE_TASK, strategy=strategy, agents=agents, budget=2, out=tmp_path / name, **fakes)  # type: ignore[arg-type]
    stores = [Store.read(tmp_path / name) for name in ("policy", "model")]
    by_policy, by_model = (store.legal_actions(0).gains for store in stores)
    assert by_policy is not None and by_model is None
    for store in stores:
        store.close()


@pytest.mark.parametrize("strategy", [Mcts(), "random"])
def test_a_strategy_that_would_not_listen_is_refused(strategy: object, tmp_path: Path) -> None:
    task = Task("told", TASK_TEXT, Variant("full"), Variant("small"), ())
    with pytest.raises(ConfigError, match=r"agents.gain=trained says nothing to .*: use strategy=best_first, or"):
        search(task, strategy=strategy, agents=AgentSettings(gain="trained"), out=tmp_path / "run", evaluator=Drawn())  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_settings_are_checked() -> None:
    plan = compose_trainee(["gain=boosted", "data=[a,b]", "trees=7"])
    assert plan is not None and (plan.trainee, plan.settings.trees) == (GAIN, 7)
    for text, said in (
        ("gain=deep", "no model of gains 'deep'"),
        ("tree=7", "no setting 'tree'"),
        ("lr=0", "lr cannot be 0"),
        ("columns=2", "columns cannot be 2"),
        ("depth=11", "depth cannot be 11: use 10 or less"),
        ("folds=1", "folds cannot be 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            compose_trainee(["gain=boosted", text])
    assert main(["train", "gain=boosted"]) == 2  # no data
    with pytest.raises(ConfigError, match=r"agents.gain_spreads cannot be nan"):
        AgentSettings(gain_spreads=math.nan)


def test_the_model_that_ships_knows_tasks_that_it_has_not_seen() -> None:
    """Of a few of the trees that were kept from it: it chooses better than the heuristic."""
    pytest.importorskip("pyarrow", reason="the extra rl is not installed")
    assert WEIGHTS.stat().st_size < 2**20
    few = [tree for tree in load_trees(TREES, "validation") if tree.graph is not None][:8]
    model = load_gains("trained")
    lost = []
    for tree in few:
        told, opinions = gains_of(tree, model), priors_of(tree, Spy())
        assert told is not None
        for node in tree.nodes:
            known = telling(tree, node)
            if len(known) >= 3:
                true = {at: tree.values[node.children[at]] for at in known}
                taken = [true[max(known, key=by.__getitem__)] for by in (told[node.id], opinions[node.id])]
                lost.append([max(true.values()) - each for each in taken])
    by_model, by_heuristic = np.asarray(lost).mean(axis=0)
    assert len(lost) > 50 and by_model < 0.6 * by_heuristic
