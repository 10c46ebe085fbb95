"""Parts that other packages bring: by entry point, and by "package.module:Class". A run is recorded by that name."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtmc import conf
from mtmc.cli import main
from mtmc.errors import ConfigError
from mtmc.fakes import FAKE_TASK, FakePolicy
from mtmc.search import load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.components import describe, make, resolve
from mtmc.search.outside import installed, outside
from mtmc.search.strategies import Greedy

MODULE = '''
"""A strategy, a policy and an evaluator of somebody else."""

from dataclasses import dataclass

from mtmc.fakes import FakeEvaluator, FakePolicy
from mtmc.search.strategies.base import PlainState, TreeStrategy


@dataclass(frozen=True)
class Latest(TreeStrategy[PlainState]):
    """The newest version that has had fewer than `width` tries."""

    width: int = 3

    def next_edge(self, state):
        found = [node for node in state.nodes.values() if node.untried and node.tried < self.width]
        return (found[-1].id, found[-1].untried[0]) if found else None


class Nested:
    @dataclass(frozen=True)
    class Plain(FakePolicy):
        """A policy in a class."""


NUMBER = 3
'''

FAKES = {
    "policy": "mtmc.fakes:FakePolicy",
    "coder": "mtmc.fakes:FakeCoder",
    "evaluator": "mtmc.fakes:FakeEvaluator",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with an installed package, as pip leaves it, and an empty working folder beside it."""
    site = tmp_path / "site"
    (site / "lately-1.0.dist-info").mkdir(parents=True)
    (site / "lately.py").write_text(MODULE)
    (site / "lately-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lately\nVersion: 1.0\n")
    lines = ["[mtmc.strategies]", "latest = lately:Latest", "greedy = lately:Latest", "broken = lately:Absent"]
    (site / "lately-1.0.dist-info" / "entry_points.txt").write_text("\n".join([*lines, ""]))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(site)
    yield site
    sys.modules.pop("lately", None)


def test_an_installed_package_brings_a_strategy(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert installed("strategy") == ["broken", "greedy", "latest"]
    assert "latest" in conf.options("strategy") and "lately" not in sys.modules, (
        "its name is known, nothing is imported"
    )
    parts = [f"{kind}={name}" for kind, name in FAKES.items()]
    given = ["task=softmax", "strategy=latest", "strategy.width=2", "dumps=false", "out=run", *parts]
    assert main(["search", *given, "budget.evaluations=8"]) == 0
    settings = load("run").record.settings
    assert settings["strategy"] == {"name": "latest", "settings": {"width": 2}}
    assert settings["policy"] == {"name": "mtmc.fakes:FakePolicy", "settings": {"stop": 0.05, "expects": False}}
    assert main(["resume", "run", "budget.evaluations=12"]) == 0
    assert load("run").evaluations == 12
    capsys.readouterr()
    assert main(["search", *given, "strategy.widht=3"]) == 2
    assert "did you mean strategy.width?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["latest", "lately:Latest"])
def test_what_a_run_has_found_is_there_without_the_package(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    result = search(FAKE_TASK, strategy=name, **FAKES, budget=10, out="run")  # type: ignore[arg-type]
    assert result.record.settings["strategy"] == {"name": name, "settings": {"width": 3}}
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(package)])
    sys.modules.pop("lately")
    assert canonical_json(load("run")) == canonical_json(result)
    for words in (["show", "run"], ["show", "run", "1"], ["report", "run"], ["export", "run", "--format=json"]):
        assert main(words) == 0, words
    with pytest.raises(ConfigError, match="'latest'" if name == "latest" else r"lately cannot be imported"):
        resume("run", budget=12)


def test_a_run_by_names_of_classes_goes_on_by_itself(tmp_path: Path) -> None:
    parts = {**FAKES, "strategy": "mtmc.fakes:FakeStrategy"}
    whole = search(FAKE_TASK, **parts, budget=20, out=tmp_path / "whole", dumps=False)  # type: ignore[arg-type]
    search(FAKE_TASK, **parts, budget=9, out=tmp_path / "run", dumps=False)  # type: ignore[arg-type]
    assert list(resume(tmp_path / "run", budget=20, dumps=False).tree) == list(whole.tree)


def test_an_object_of_the_same_class_has_no_name(tmp_path: Path) -> None:
    assert (
        describe("policy", "mtmc.fakes:FakePolicy", resolve("policy", "mtmc.fakes:FakePolicy"))["name"]
        == FAKES["policy"]
    )
    assert describe("policy", FakePolicy(), FakePolicy())["object"] == "mtmc.fakes.FakePolicy"
    sent = pickle.loads(pickle.dumps(resolve("policy", "mtmc.fakes:FakePolicy")))
    assert describe("policy", sent, sent)["name"] == FAKES["policy"], "a process of a benchmark records it as well"


def test_names_of_mtmcs_own_are_its_own(package: Path) -> None:
    assert make("strategy", "greedy", {}) == Greedy()
    assert "lately" not in sys.modules


def test_a_class_within_a_class_has_a_name(package: Path) -> None:
    assert type(resolve("policy", "lately:Nested.Plain")).__name__ == "Plain"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nowhere:Part",
            r"nowhere cannot be imported for 'nowhere:Part' \(ModuleNotFoundError.*: run mtmc in the folder",
        ),
        ("lately:Absent", r"lately has no 'Absent': name a class of it, lately:Class"),
        ("broken", r"lately has no 'Absent'"),
        ("lately:", r"'lately:' names no class: write it as package\.module:Class"),
        (":Latest", r"':Latest' names no class"),
        ("lately:NUMBER", r"lately:NUMBER is a int: name a class"),
        ("lately:Nested", r"is no strategy: .*it lacks by_expected, start"),
        ("latesd", r"there is no strategy 'latesd': did you mean 'latest'\?.*latest, or package\.module:Class"),
    ],
)
def test_a_name_that_is_none_is_refused(package: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve("strategy", name)


def test_a_module_that_raises_is_refused(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "explosive.py").write_text("raise RuntimeError('out of order')\n")
    assert main(["search", "task=softmax", "strategy=explosive:Part"]) == 2
    assert "explosive cannot be imported for 'explosive:Part' (RuntimeError: out of order)" in capsys.readouterr().err
    assert not list(Path.cwd().iterdir()), "nothing is left behind"


def test_modules_of_the_present_folder_are_found(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("beside.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    try:
        assert outside("strategy", "beside:Latest")(width=5).width == 5
    finally:
        sys.modules.pop("beside", None)


def test_a_sweep_takes_them_too(package: Path) -> None:
    _, configs = conf.check_sweep(["task=softmax", "strategy=latest,lately:Latest,mcts"])
    assert [config.strategy.name for config in configs] == ["latest", "lately:Latest", "mcts"]
