"""Exit status 3 of every command that searches: its model answered nothing, or nothing usable, and work is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.bench.suites import SUITES
from mtmc.cli import main
from mtmc.cli.command import CUT_SHORT
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeEvaluator, FakePolicy
from mtmc.search import breaker
from tests.agents.asking import AskingFake
from tests.agents.fault_server import FaultServer, Reply, server_error
from tests.bench.faults import Faults
from tests.whole.toy import KernelCounter

MODELS = """\
import torch


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))


def make_inputs():
    return (torch.randn(4, 8),)
"""
ASKED = ("coder=asking", "policy=fake", "model.name=openai/scripted", "model.retries=0", "model.patience_s=0")


@pytest.fixture(autouse=True)
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(breaker, "PAUSE_S", 0.01)
    (tmp_path / "models.py").write_text(MODELS)
    registries: tuple[tuple[Any, str, Any], ...] = (
        (POLICIES, "fake", FakePolicy),
        (CODERS, "asking", AskingFake),
        (EVALUATORS, "fake", FakeEvaluator),
        (EVALUATORS, "counter", KernelCounter),
        (SUITES, "faults", Faults),
    )
    for registry, name, made in registries:
        monkeypatch.setitem(registry, name, made)


def dead(body: dict[str, Any]) -> Reply:
    return server_error(503)


def test_a_benchmark_whose_model_is_dead(capsys: pytest.CaptureFixture[str]) -> None:
    """It says so, and the same command with retry=true goes on where it ended."""
    argv = ["bench", "suite=faults", "problems=[good,other]", *ASKED, "evaluator=fake", "budget=4", "jobs=1", "out=b"]
    with FaultServer(reply=dead) as server:
        assert main([*argv, f"model.api_base={server.url}"]) == CUT_SHORT
        assert "the model answered nothing usable for level1/good, level1/other" in capsys.readouterr().out
        assert main([*argv, f"model.api_base={server.url}", "--json"]) == CUT_SHORT, "rows that are there count as well"
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_status"] == CUT_SHORT and [row["cut_short"] for row in answer["rows"]] == [True, True]
    with FaultServer(reply=lambda body: "edit") as server:
        assert main([*argv, f"model.api_base={server.url}", "retry=true"]) == 0
    rows = json.loads(Path("b/bench.json").read_text())["rows"]
    assert [row["cut_short"] for row in rows] == [False, False] and {row["evaluations"] for row in rows} == {4}


@pytest.mark.parametrize("whole", ["no", "yes"])
def test_a_live_model_whose_search_has_a_dead_model(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["optimize", "models:make_model", "--inputs", "models:make_inputs", "--whole", whole, "--no-cache", *ASKED]
    argv += ["evaluator=counter", "budget=3", "dumps=false", "out=o", "coder=llm"]
    with FaultServer(reply=dead) as server:
        assert main([*argv, f"model.api_base={server.url}"]) == CUT_SHORT
        assert server.requests
