"""The compact policy: numpy against torch, the mixture by hand, its file, and a training from folder to search."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.compact.network import read_network, write_network
from mtmc.agents.policies.learned.compact.policy import Compact
from mtmc.agents.policies.mixing import mixed_prior
from mtmc.cli import main
from mtmc.conf.train import compose_train
from mtmc.errors import ConfigError, RunError
from mtmc.rl.dataset import write_dataset
from mtmc.rl.forest import forest_of
from mtmc.rl.record import Record, merged, record_run
from mtmc.rl.schema import split_of
from mtmc.rl.train.compact_scorer import CompactSettings
from mtmc.rl.train.pretraining import Pretraining
from mtmc.rl.train.ragged import log_softmax_np
from mtmc.rl.train.run import fixed_table, train
from mtmc.rl.trees import RecordedTree, load_trees
from mtmc.task import Task, Variant
from mtmc.tree import source_hash
from tests.rl.recorded import TASK_TEXT, Spy, run_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded trees of two tasks, one to learn from and one to validate."""
    pytest.importorskip("pyarrow", reason="the extra rl is not installed")
    made = tmp_path_factory.mktemp("trees")
    records: list[Record] = []
    wanted = {"train", "validation"}
    for rows in range(4096, 8192, 64):
        text = TASK_TEXT.replace("4096", str(rows))
        split = split_of(source_hash(text))
        if split in wanted:
            wanted.remove(split)
            task = Task(f"rows{rows}", text, Variant("full"), Variant("small"), ())
            run_of(task, made / task.name, Spy(), evaluations=12)
            records.append(record_run(made / task.name))
    write_dataset(merged(records), made / "data")
    return made / "data"


@pytest.fixture(scope="module")
def trees(folder: Path) -> list[RecordedTree]:
    return load_trees(folder)


def test_numpy_and_torch_agree(trees: list[RecordedTree], tmp_path: Path) -> None:
    forest = forest_of(trees)
    scorer = CompactSettings(hidden=32, value_hidden=8).open(forest, seed=3)
    with torch.no_grad():
        for parameter in scorer.groups(1.0)[0]["params"]:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    write_network(scorer.network, tmp_path / "weights.npz", {})
    network = read_network(tmp_path / "weights.npz")
    batch = forest.batch(np.flatnonzero(forest.ok))
    with torch.no_grad():
        scores = scorer.score(batch)
    for at in range(len(batch)):
        part = batch.part(at, at + 1)
        state = dict(zip(forest.state_names, part.observations[0].tolist(), strict=True))
        rows = [dict(zip(forest.action_names, row.tolist(), strict=True)) for row in part.actions]
        logits = network.logits(state, [{**row, "kind:new": 1.0} for row in rows])  # what nobody learned is left out
        assert logits == pytest.approx(scores.logits[batch.state_of == at].numpy(), abs=1e-4)
        assert network.value(state) == pytest.approx(scores.values[at].item(), abs=1e-4)


def test_untrained_it_is_the_heuristic_and_small(trees: list[RecordedTree], tmp_path: Path) -> None:
    scorer = CompactSettings().open(forest_of(trees), seed=0)
    assert scorer.network.size < 100_000
    scorer.export(tmp_path, "# Card\n")
    policy = Compact(str(tmp_path / "weights.npz"), floor=1e-9)
    tree = trees[0]
    observation, actions = tree.observation(0), tree.root.actions
    assert policy.prior(observation, actions) == pytest.approx(Heuristic().prior(observation, actions), rel=1e-3)
    assert "weights over" in (tmp_path / "model_card.md").read_text()


def test_the_state_of_a_network_with_other_features_is_refused(trees: list[RecordedTree]) -> None:
    forest = forest_of(trees)
    scorer = CompactSettings().open(forest, seed=0)
    scorer.load_state_dict(scorer.state_dict())
    other = CompactSettings().open(replace(forest, action_names=("new", *forest.action_names[1:])), seed=0)
    with pytest.raises(RunError, match="began with other features than there are now: choose another out="):
        other.load_state_dict(scorer.state_dict())


def test_the_mixture_by_hand() -> None:
    others = [0.5, 0.25, 0.25]
    found = mixed_prior([0.0, 2 * math.log(3.0), -1e9], others, temperature=2.0, weight=0.4, floor=0.06, more=[0.0] * 3)
    # softmax 1/4, 3/4, 0; mixed 0.6 * own + 0.4 * others; 0.94 of it, and 0.02 each
    expected = [0.02 + 0.94 * mixed for mixed in (0.15 + 0.2, 0.45 + 0.1, 0.1)]
    assert found == pytest.approx(expected)
    assert sum(found) == pytest.approx(1.0)
    assert mixed_prior([0.0, -1e9], [1.0, 0.0], 1.0, 0.0, 0.05, [0.0, 0.0])[1] == pytest.approx(
        0.025
    )  # the floor alone
    assert mixed_prior([0.0, 5.0], [0.5, 0.5], 1.0, 1.0, 0.1, [0.0, 0.0]) == pytest.approx([0.5, 0.5])
    tripled = mixed_prior([0.0, 0.0], [0.5, 0.5], 1.0, 0.5, 0.2, [math.log(3.0), 0.0])
    assert tripled == pytest.approx([0.1 + 0.8 * 0.75, 0.1 + 0.8 * 0.25])


def test_bad_settings_and_weights_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no weights of the compact policy at .*nowhere.npz: train them with mtmc"):
        Compact(str(tmp_path / "nowhere.npz"))
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"bad.npz holds no weights"):
        Compact(str(tmp_path / "bad.npz"))
    for name, value in (("temperature", 0.0), ("heuristic", 1.5), ("floor", 0.0)):
        with pytest.raises(ConfigError, match=rf"compact.{name} cannot be"):
            Compact(**{name: value})  # type: ignore[arg-type]


def test_weights_that_do_not_name_their_features_are_refused(trees: list[RecordedTree], tmp_path: Path) -> None:
    network = CompactSettings().open(forest_of(trees), seed=0).network
    write_network(replace(network, action_names=("heuristic",)), tmp_path / "old.npz", {})
    with pytest.raises(RunError, match=r"take \d+ and \d+ features, but name \d+ and 1: train them again"):
        read_network(tmp_path / "old.npz")


def test_what_never_changes_in_the_training_data_has_no_weight(trees: list[RecordedTree]) -> None:
    forest = forest_of(trees)
    network = CompactSettings().open(forest, seed=0).network
    for rows, weights in (
        (forest.observations[forest.ok], network.weights["state_in"]),
        (forest.actions, network.weights["action_in"]),
    ):
        constant = rows.std(axis=0, dtype=np.float64) < 1e-3
        assert constant.any() and not constant.all()
        assert not weights[:, constant].any() and weights[:, ~constant].any(axis=0).all()


def test_the_command_trains_a_policy_for_a_search(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "training"
    words = [f"data={folder}", f"out={out}", "iterations=3", "episodes=32", "pretraining.epochs=3", "validate_every=3"]
    words += ["policy.hidden=16", "algorithm.minibatch=64", "budget=6", "seeds=1"]
    assert main(["train", *words]) == 0
    said = capsys.readouterr()
    assert "heuristic" in said.out and "weights.npz" in said.out
    assert "[6/6] rl: reward" in said.err
    rows = list(csv.DictReader((out / "curves.csv").open()))
    assert [row["phase"] for row in rows] == ["start", *["pretraining"] * 3, *["rl"] * 3]
    assert float(rows[-1]["entropy"]) > 0.0 and rows[-1]["score"]
    assert (out / "curves.png").stat().st_size > 10_000
    card = (out / "best" / "model_card.md").read_text()
    assert "mtmc train data=" in card and "| pretraining.epochs | 3 |" in card and "seed 0" in card
    tree = load_trees(folder)[0]
    prior = Compact(str(out / "best" / "weights.npz")).prior(tree.observation(0), tree.root.actions)
    assert sum(prior) == pytest.approx(1.0) and min(prior) >= 0.05 / len(prior) * 0.999
    assert main(["train", *words]) == 0  # nothing is left to do
    capsys.readouterr()
    assert main(["train", *words, f"out={tmp_path / 'late'}", "minutes=1e-6"]) == 0
    assert "the time is up: the same command goes on" in capsys.readouterr().out
    assert "The time was up after unit 0." in (tmp_path / "late" / "best" / "model_card.md").read_text()
    with pytest.raises(ConfigError, match="choose another out="):
        plan, given = compose_train([*words, "episodes=33"])
        train(plan, Path(str(given)), lambda unit, units, row: None, lambda text: None)


def test_overrides_are_checked() -> None:
    plan, out = compose_train(
        ["algorithm=grpo", "algorithm.group_size=4", "pretraining={epochs: 2}", "data=[a,b]", "seed=7"]
    )
    assert plan.settings.pretraining == Pretraining(epochs=2) and plan.settings.data == ("a", "b") and out is None
    assert plan.plain()["algorithm"]["group_size"] == 4 and plan.plain()["policy"]["name"] == "compact"
    for text, said in (
        ("policy=unifrm", "no policy 'unifrm' that can be trained"),
        ("algorithm.group_size=4", "no setting 'algorithm.group_size'"),
        ("algorithm.members=4", "algorithm.group_size now"),
        ("warm.rate=1e-3", "pretraining.lr now"),
        ("warm.epochs=3", "pretraining.epochs now"),
        ("anywhere=0", "random_start_prob now"),
        ("reward=fame", "reward cannot be 'fame': use one of paper"),
        ("episodes=many", "episodes cannot be 'many': use a whole number"),
        ("algorithm.clip=0", "algorithm.clip cannot be 0"),
        ("random_start_prob=2", "random_start_prob cannot be 2"),
    ):
        with pytest.raises(ConfigError, match=said):
            compose_train([text])
    assert main(["train"]) == 2  # no data


def test_probabilities_of_a_table_are_those_of_the_policy(trees: list[RecordedTree]) -> None:
    forest = forest_of(trees)
    table = fixed_table(forest, Heuristic())
    table.need(forest.roots)
    batch = forest.batch(forest.roots[:1])
    priors = np.asarray(Heuristic().prior(forest.observation(0), forest.legal(0)))[batch.edges]
    assert np.exp(log_softmax_np(table.logits[batch.edges], batch.counts)) == pytest.approx(priors / priors.sum())
