"""The command line as Hydra's users expect it: --cfg, --config-dir, +group, hydra.run.dir, sweepers and launchers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.cli import main
from mtmc.cli.sweep import sweep_job
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import load

FAKES = ("policy=fake", "coder=fake", "evaluator=fake")
SEARCH = ("search", "task=softmax", *FAKES, "budget.evaluations=4", "dumps=false")
OUTSIDE = ("policy=mtmc.fakes:FakePolicy", "coder=mtmc.fakes:FakeCoder", "evaluator=mtmc.fakes:FakeEvaluator")
"""The fakes for processes that have no registry of this test."""


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts: tuple[tuple[Any, Any], ...] = ((POLICIES, FakePolicy), (CODERS, FakeCoder), (EVALUATORS, FakeEvaluator))
    for registry, fake in parts:
        monkeypatch.setitem(registry, "fake", fake)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of config files: an option of a group, and a group of its own that changes several settings."""
    folder = tmp_path / "my configs"
    for name, text in (
        ("strategy/wide.yaml", "defaults: [mcts]\nexploration: 2.5\n"),
        (
            "experiment/short.yaml",
            "# @package _global_\ndefaults:\n  - override /strategy: greedy\nbudget:\n  depth: 3\n",
        ),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    return folder


def settings(folder: str) -> Any:
    return yaml.safe_load((Path(folder) / "config.yaml").read_text())


def test_cfg_shows_what_hydra_composes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--cfg", "job", "strategy.exploration=2"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["strategy"] == {**shown["strategy"], "name": "mcts", "exploration": 2.0} and "hydra" not in shown
    assert main([*SEARCH, "--cfg", "hydra"]) == 0
    assert set(yaml.safe_load(capsys.readouterr().out)) == {"hydra"}
    assert main([*SEARCH, "--cfg", "all", "--json"]) == 0
    assert {"hydra", "task"} <= set(json.loads(capsys.readouterr().out)["settings"])
    assert main([*SEARCH, "--cfg", "job", "batch=0.5"]) == 2
    assert "batch cannot be '0.5'" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_a_folder_of_configs_brings_options_and_groups(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--config-dir", str(mine), "strategy=wide", "out=a"]) == 0
    assert settings("a")["strategy"]["settings"]["exploration"] == 2.5
    assert main([*SEARCH, "--config-dir", mine.name, "+experiment=short", "strategy.follow=best", "out=b"]) == 0
    assert settings("b")["strategy"]["name"] == "greedy" and settings("b")["budget"]["depth"] == 3
    assert main([*SEARCH, "-m", "--config-dir", str(mine), "+experiment=short", "seed=0,1", "out=c"]) == 0
    assert [settings(f"c/{number}")["budget"]["depth"] for number in (0, 1)] == [3, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--config-dir", "nowhere"), "there is no folder 'nowhere'"),
        (("--config-dir", "my configs", "strategy=wid"), "did you mean wide?"),
        (("--config-dir", "my configs", "+experiment=shot"), "experiment/shot"),
        (("+experiment=short",), "settings cannot be added"),
        (("hydra.run.dir=a", "out=b"), "both name the run's folder"),
        (("hydra.run.dir=${nothing}",), "hydra.run.dir cannot be resolved"),
        (("-m", "strategy.exploration=interval(0.5,2)"), "hydra/sweeper=optuna"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    given: tuple[str, ...], message: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SEARCH, *given]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == [mine.name]


def test_entries_of_an_open_setting_may_be_added(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "+model.extra.top_p=0.9", "--cfg", "job"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["model"]["extra"] == {"top_p": 0.9}


def test_hydras_name_of_the_folder_is_that_of_a_single_run_too() -> None:
    assert main([*SEARCH, "hydra.run.dir=a/${task}-${now:%Y}-${seed}", "seed=3"]) == 0
    [found] = Path("a").iterdir()
    assert found.name.startswith("softmax-2") and found.name.endswith("-3") and load(found).finished


def test_the_objective_of_a_run_is_its_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher

    returned: list[float] = []
    launch = BasicLauncher.launch

    def kept(self: Any, *arguments: Any, **more: Any) -> Any:
        found = launch(self, *arguments, **more)
        returned.extend(each.return_value for each in found)
        return found

    monkeypatch.setattr(BasicLauncher, "launch", kept)
    assert main([*SEARCH, "-m", "seed=0,1", "out=a"]) == 0
    assert returned == [load(f"a/{number}").best.speedup for number in (0, 1)]
    assert sweep_job.__annotations__["return"] == "float"


def test_optuna_draws_from_intervals_and_looks_for_the_largest_speedup(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'mtmc[sweep]'")
    drawn = ("strategy.exploration=interval(0.5,2)", "seed=choice(0,1)", "evaluator.gain=0.3,0.6")
    optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=5", "hydra.sweeper.sampler.seed=1")
    assert main([*SEARCH, "-m", *drawn, *optuna, "out=a"]) == 0
    runs = {number: load(f"a/{number}") for number in range(5)}
    explored = [settings(f"a/{number}")["strategy"]["settings"]["exploration"] for number in runs]
    assert len(set(explored)) == 5 and all(0.5 <= each <= 2 for each in explored)
    best = yaml.safe_load(Path("a/optimization_results.yaml").read_text())
    assert best["best_value"] == pytest.approx(max(run.best.speedup or 0.0 for run in runs.values()))
    assert sum(int(row["runs"]) for row in csv.DictReader(Path("a/sweep.csv").read_text().splitlines())) == 5
    assert main([*SEARCH, "-m", "strategy.exploration=interval(-2,-1)", *optuna, "out=b"]) == 2
    assert "exploration cannot be -2" in capsys.readouterr().err and not Path("b").exists()


def test_joblib_launches_runs_in_processes() -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'mtmc[sweep]'")
    given = ("search", "-m", "task=softmax", *OUTSIDE, "budget.evaluations=3", "dumps=false", "seed=0,1")
    assert main([*given, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "out=a"]) == 0
    assert [load(f"a/{number}").evaluations for number in (0, 1)] == [3, 3]
