"""mtmc bench: its settings, what it prints, and one real search in the lab."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.bench.settings import BenchSettings
from mtmc.bench.suites import SUITES
from mtmc.cli import main
from mtmc.conf.bench import compose_bench
from mtmc.errors import ConfigError
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.store import Store
from tests.bench.faults import Faults

FAKES = ("policy=fake", "coder=fake", "evaluator=fake")


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, the fakes under the name "fake", and the suite of faults."""
    monkeypatch.chdir(tmp_path)
    registries: tuple[tuple[Any, str, Any], ...] = (
        (POLICIES, "fake", FakePolicy),
        (CODERS, "fake", FakeCoder),
        (EVALUATORS, "fake", FakeEvaluator),
        (SUITES, "faults", Faults),
    )
    for registry, name, made in registries:
        monkeypatch.setitem(registry, name, made)


def test_settings_are_told_apart() -> None:
    own = "suite=kernelbench path=some/where levels=[1,2] problems=[19,3_Max,T/add] every=5 dtype=bf16 minutes=2.5"
    texts = [*own.split(), "budget=48", "strategy=greedy", "out=x", "batch=4", "score=[odd, name"]
    settings, config = compose_bench(texts)
    assert settings == BenchSettings(
        suite="kernelbench",
        path="some/where",
        levels=("1", "2"),
        problems=("19", "3_Max", "T/add"),
        every=5,
        dtype="bf16",
        minutes=2.5,
        score="[odd, name",
    )
    assert (config.budget.evaluations, config.strategy.name, config.out, config.batch) == (48, "greedy", "x", 4)
    assert config.dumps is False
    assert compose_bench(["levels=1", "dumps=true"])[0].levels == ("1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("levls=[1]", "there is no setting 'levls': did you mean levels?"),
        ("evaluater=lab", "there is no setting 'evaluater': did you mean evaluator?"),
        ("budget.evaluation=2", "there is no setting 'budget.evaluation': did you mean budget.evaluations?"),
        ("task=softmax", "a benchmark takes its tasks from its suite"),
        ("dtype=fp8", "dtype cannot be 'fp8': use one of fp32, fp16, bf16"),
        ("every=two", "every cannot be 'two': use a whole number"),
        ("every=0", "every cannot be 0"),
        ("problem_minutes=null", "problem_minutes cannot be 'null'"),
    ],
)
def test_a_wrong_setting_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_bench([text])
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "argv",
    [
        ("suite=kernelbenc",),
        ("suite=kernelbench",),
        ("suite=kernelbench", "path=nowhere"),
        ("suite=builtin", "problems=[softmx]"),
        ("suite=builtin", "score=nowhere"),
        ("suite=builtin", "coder=llm", "evaluator=fake", "out=b", "problems=[softmax]"),
        ("--lst",),
    ],
)
def test_bad_input_is_one_line_and_status_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("mtmc: ") and said.err.count("\n") == 1


def test_dry_run_prints_all_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--dry-run", "suite=builtin", "budget=3", "out=x"]) == 0
    plain = yaml.safe_load(capsys.readouterr().out)
    assert (plain["suite"], plain["out"], plain["budget"]["evaluations"]) == ("builtin", "x", 3)
    assert "task" not in plain and not Path("x").exists()


def test_what_is_printed_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "suite=faults", "problems=[good,no_task,other]", *FAKES, "budget=4", "jobs=1", "out=b"]
    assert main(argv) == 0
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("1/3 level1/good: ") and "4 evaluations, " in lines[0]
    assert lines[1].startswith("2/3 level1/no_task: not loaded: it is none, ")
    assert "3 of 3 problems have ended." in said.out
    assert "**All runtimes are estimates for H100; nothing was measured.**" in said.out
    assert "| correct | 2 |" in said.out
    files = {"bench.json", "bench.md", "bench.png", "settings.json", "rows", "runs", "logs", ".lock"}
    assert {path.name for path in Path("b").iterdir()} == files
    assert main(["show", "b/runs/level1/good"]) == 0
    capsys.readouterr()
    assert main(argv) == 0  # all of it is there
    assert capsys.readouterr().err == ""


def test_which_problems_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "suite=faults", "problems=[good,no_task]"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["level1/no_task: not loaded: it is none", "level1: 1 of 2 problems load"]
    assert list(Path().iterdir()) == []


def test_help_names_suites_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    said = capsys.readouterr().out
    assert "one of kernelbench, tritonbench, builtin" in said and "problem_minutes=" in said


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "torch triton numpy langgraph hydra omegaconf matplotlib networkx libcst litellm rich"
    code = f"import sys, mtmc.bench; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"


def test_a_real_search_in_the_lab(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "suite=builtin", "problems=[row_sum]", "dtype=fp16", "budget=2", "evaluator.workers=1", "out=b"]
    assert main(argv) == 0
    [row] = json.loads(Path("b/bench.json").read_text())["rows"]
    assert row["failure"] is None and row["correct"] and row["triton"] and row["evaluations"] == 2
    assert row["runtime_kind"] == "estimated" and 0 < row["roofline"] <= 1
    store = Store.read(Path("b/runs/builtin/row_sum"))
    assert "torch.float16" in store.task().source
    store.close()
    config = yaml.safe_load(Path("b/runs/builtin/row_sum/config.yaml").read_text())
    assert config["evaluator"]["name"] == "lab"  # which it shared with others: it can be resumed by itself
