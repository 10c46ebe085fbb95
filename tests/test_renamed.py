"""A setting's old name: whoever types it is told the new one, and what was recorded under it is still read."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import mtmc
from mtmc import conf
from mtmc.action import Action
from mtmc.bench import BenchSettings
from mtmc.chat import ModelSettings
from mtmc.cli import main
from mtmc.conf import composing
from mtmc.conf.bench import compose_bench
from mtmc.conf.collect import compose_collect
from mtmc.conf.schema import setting_fields
from mtmc.conf.train import compose_train
from mtmc.conf.train import flat_types as train_types
from mtmc.conf.trainee import CODER, compose_trainee
from mtmc.errors import ConfigError
from mtmc.protocols import Observation, Policy
from mtmc.renamed import RENAMED, new_name, refuse_old, under_new_names
from mtmc.rl.settings import CollectSettings
from mtmc.rl.train.algorithms import ALGORITHMS
from mtmc.rl.train.scorers import SCORERS
from mtmc.search import Budget
from mtmc.search.components import make, registry, remake

CONF = Path(mtmc.__file__).parent / "conf"


SHIPPED = dict(RENAMED)


@dataclass(frozen=True)
class Careful(Policy):
    """A policy with a setting that was renamed."""

    caution: float = 0.5

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """See `mtmc.protocols.Policy`."""
        return [1 / len(actions)] * len(actions)


@pytest.fixture(autouse=True)
def old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that were called otherwise."""
    monkeypatch.setitem(registry("policy"), "careful", Careful)  # type: ignore[arg-type]
    for old, new in (
        ("policy.fear", "policy.caution"),
        ("budget.versions", "budget.evaluations"),
        ("purse", "budget"),
        ("parallel", "batch"),
        ("algorithm.cut", "algorithm.clip"),
        ("sft.many", "sft.batch"),
        ("trees", "tasks"),
        ("sizes", "levels"),
    ):
        monkeypatch.setitem(RENAMED, old, new)


def test_no_old_name_is_a_new_one_too_and_no_two_are_one() -> None:
    assert not set(RENAMED) & set(RENAMED.values())
    assert len(set(RENAMED.values())) == len(RENAMED)


def every_setting() -> set[str]:
    """All that may be typed for any command, groups of settings too."""
    names = set(setting_fields(conf.SearchConfig)) | set(setting_fields(BenchSettings))
    names |= set(setting_fields(CollectSettings)) | set(CODER.flat_types())
    names |= {f"budget.{each}" for each in setting_fields(Budget)}
    names |= {f"model.{each}" for each in setting_fields(ModelSettings)}
    for kind in conf.GROUPS:
        names |= {f"{kind}.{each}" for maker in registry(kind).values() for each in setting_fields(maker)}
    for policy, algorithm in itertools.product(SCORERS, ALGORITHMS):
        names |= set(train_types(policy, algorithm))
    return names | {name.rpartition(".")[0] for name in names}


def test_of_each_pair_in_the_table_one_is_a_setting() -> None:
    known = every_setting()
    wrong = {old: new for old, new in SHIPPED.items() if (old in known) == (new in known)}
    assert not wrong


def test_the_longest_name_in_the_table_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RENAMED, "purse.coins", "budget.usd")
    assert new_name("purse.coins") == "budget.usd"
    assert new_name("purse.depth") == "budget.depth"
    assert new_name("purse") == "budget"
    assert new_name("purses") is None
    assert new_name("budget.purse") is None


def test_a_name_that_a_setting_has_is_never_refused() -> None:
    refuse_old("policy.fear", ["policy.fear"])
    refuse_old("policy.courage")
    with pytest.raises(ConfigError):
        refuse_old("policy.fear", ["policy.caution"])


@pytest.mark.parametrize(
    ("composed", "text", "new"),
    [
        (conf.compose, "budget.versions=8", "budget.evaluations"),
        (conf.compose, "budget={versions: 8}", "budget.evaluations"),
        (conf.compose, "purse.depth=8", "budget.depth"),
        (conf.compose, "parallel=8", "batch"),
        (conf.check_sweep, "parallel=1,2", "batch"),
        (compose_bench, "sizes=1", "levels"),
        (compose_bench, "budget.versions=8", "budget.evaluations"),
        (compose_collect, "trees=8", "tasks"),
        (compose_train, "algorithm.cut=0.1", "algorithm.clip"),
        (compose_trainee, "sft.many=1", "sft.batch"),
    ],
)
def test_every_command_refuses_an_old_name_with_the_new_one(
    composed: Callable[[list[str]], object], text: str, new: str
) -> None:
    others = {"compose": ["task=softmax"], "check_sweep": ["task=softmax"], "compose_trainee": ["coder=tiny"]}
    with pytest.raises(ConfigError) as caught:
        composed([*others.get(composed.__name__, []), text])
    old = "budget.versions" if "versions" in text else text.partition("=")[0]
    assert str(caught.value) == f"the setting {old} is called {new} now: write {new}=..."


def test_an_old_name_ends_a_command_with_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", "task=softmax", "policy=careful", "policy.fear=1"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "mtmc: the setting policy.fear is called policy.caution now: write policy.caution=...\n",
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole", [False, True])
def test_an_old_name_in_a_file_is_refused(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / ("whole_conf" if whole else "part_conf")
    (package / "policy").mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(CONF / "config.yaml", package)
    (package / "policy" / "wary.yaml").write_text("defaults: [careful, _self_]\nfear: 3.0\n")
    if whole:
        text = (package / "config.yaml").read_text()
        (package / "config.yaml").write_text(text.replace("\nbatch:", "\nparallel:"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(composing, "MODULE", package.name)
    monkeypatch.setattr(composing, "__file__", str(package / "__init__.py"))
    with pytest.raises(ConfigError) as caught:
        conf.compose(["task=softmax", *([] if whole else ["policy=wary"])])
    old, new = ("parallel", "batch") if whole else ("policy.fear", "policy.caution")
    assert str(caught.value) == f"the setting {old} is called {new} now: write {new}=..."


def test_an_old_name_given_in_python_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.fear is called policy\.caution now"):
        make("policy", "careful", {"fear": 1.0})
    with pytest.raises(ConfigError, match="cannot be made with"):
        make("policy", "careful", {"caution": 1.0, "courage": 1.0})


def test_a_part_recorded_under_an_old_name_is_made_again() -> None:
    assert remake("policy", {"name": "careful", "settings": {"fear": 2.0}}, None) == Careful(caution=2.0)
    assert under_new_names("policy", {"fear": 2.0, "hope": 1}, ["fear"]) == {"fear": 2.0, "hope": 1}
