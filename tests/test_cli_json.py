"""--json: every command says one JSON document on stdout, and nothing else there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtmc import doctor
from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.cli import COMMANDS, documents, main
from mtmc.errors import EvaluatorError
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import load

SMALL = ("search", "task=softmax", "policy=fake", "coder=fake", "evaluator=fake", "budget.evaluations=6", "dumps=false")


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    parts: tuple[tuple[Any, Any], ...] = ((POLICIES, FakePolicy), (CODERS, FakeCoder), (EVALUATORS, FakeEvaluator))
    for registry, fake in parts:
        monkeypatch.setitem(registry, "fake", fake)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command and gives its document; what it printed besides is on stderr."""

    def run(*argv: str, status: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*argv, "--json"]) == status
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert found["exit_status"] == status
        return found

    return run


def test_a_run_and_all_that_looks_at_it(said: Any) -> None:
    found = said(*SMALL, "out=a")
    run = load("a")
    assert (found["command"], found["task"], found["run_dir"]) == ("search", "softmax", "a")
    assert (found["evaluations"], found["versions"], found["finished"]) == (6, len(run.tree), run.finished)
    best = found["best"]
    assert (best["id"], best["speedup"], best["runtime_ms"]) == (
        run.best.node_id, run.best.speedup, run.best.runtime_ms
    )  # fmt: skip
    assert best["runtime_kind"] == "estimated" and best["status"] == "ok" and best["action"]
    assert found["root"]["id"] == 0 and found["root"]["action"] is None

    assert said("resume", "a", "budget.evaluations=8")["evaluations"] == 8
    shown = said("show", "a")
    assert [each["id"] for each in shown["tree"]] == list(range(shown["versions"]))
    assert shown["tree"][1]["parent_id"] == 0 and shown["tree"][1]["sentence"] and "source" not in shown["tree"][1]
    version = said("show", "a", "1")
    assert version["source"] == load("a").tree[1].source and version["diff"].startswith("--- nodes/0.py")
    assert (version["id"], version["parent_id"]) == (1, 0) and version["kind"]
    assert said("report", "a")["report"].startswith("# ")
    assert json.loads(said("export", "a", "-f", "json")["content"])["graph"]["task"] == "softmax"
    assert said("export", "a", "-o", "b.dot") == {
        "command": "export", "exit_status": 0, "format": "dot", "path": "b.dot"
    }  # fmt: skip
    assert Path("b.dot").exists()
    assert said("dataset", "a", "-o", "sft.jsonl", "--format", "sft")["examples"] >= 0


def test_a_sweep_and_its_report(said: Any) -> None:
    found = said(*SMALL, "-m", "seed=0,1", "out=sweep")
    assert [run["run_dir"] for run in found["runs"]] == ["sweep/0", "sweep/1"] and found["failures"] == []
    [row] = found["rows"]
    assert row["runs"] == 2 and row["speedups"] == [run["best"]["speedup"] for run in found["runs"]]
    again = said("report", "sweep")
    assert (again["runs"], again["rows"]) == (found["runs"], found["rows"])


@pytest.mark.parametrize(
    "argv",
    [
        (*SMALL, "--dry-run"),
        ("bench", "suite=builtin", "--dry-run"),
        ("collect", "--dry-run"),
        ("train", "data=trees", "--dry-run"),
    ],
)
def test_settings(said: Any, argv: tuple[str, ...]) -> None:
    settings = said(*argv)["settings"]
    assert settings and not Path("runs").exists()


def test_the_cache_and_the_machine(said: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert said("cache", "list")["entries"] == [] and said("cache", "path")["folder"] == str(tmp_path / "cache")
    assert said("cache", "clear")["removed"] == 0
    findings = [
        doctor.Finding("torch", True, "2.11", needed=True),
        doctor.Finding("triton", False, "no", "get it", True),
    ]
    monkeypatch.setattr(doctor, "examine", lambda asked: iter(findings))
    found = said("doctor", status=1)
    assert found["able"] is False
    assert found["findings"][1] == {"what": "triton", "ok": False, "detail": "no", "fix": "get it", "needed": True}


@pytest.mark.parametrize(
    ("argv", "kind", "words"),
    [
        (("search", "task=softmax", "stratgy=mcts"), "ConfigError", "strategy"),
        (("serch",), "ConfigError", "search"),
        (("show",), "ConfigError", "RUN"),
        ((), "ConfigError", "a command is missing"),
        (("show", "nowhere"), "RunError", "nowhere"),
        (("report", "nowhere"), "RunError", "nowhere"),
        (("export", "nowhere", "-f", "pdf"), "ConfigError", "pdf"),
        (("bench", "suite=none"), "ConfigError", "none"),
        (("optimize", "nothing:here", "--inputs", "nothing:there"), "ConfigError", "nothing"),
    ],
)
def test_errors_are_documents_too(said: Any, argv: tuple[str, ...], kind: str, words: str) -> None:
    found = said(*argv, status=2)
    assert found["kind"] == kind and words in found["error"] and "\n" not in found["error"]
    assert found["command"] == (argv[0] if argv and argv[0] in COMMANDS else None)


def test_a_search_that_fails_or_is_interrupted_on_the_way(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FakeEvaluator, request: Any) -> Any:
        raise EvaluatorError("the workers are gone")

    monkeypatch.setattr(FakeEvaluator, "_evaluate", fail)
    assert said(*SMALL, "out=a", status=2)["kind"] == "EvaluatorError"

    def stop(self: FakeEvaluator, request: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeEvaluator, "_evaluate", stop)
    assert said(*SMALL, "out=b", status=130)["error"].startswith("interrupted")


def test_what_child_processes_print_is_not_on_stdout() -> None:
    program = (
        "import os, sys; from mtmc.cli import documents\n"
        "with documents.stdout_kept():\n    print('python'); os.system('echo child')\n"
        "print(documents.text_of({'a': float('inf'), 'b': [1.5, None]}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout) == {"a": None, "b": [1.5, None]}
    assert set(done.stderr.split()) == {"python", "child"}


def test_every_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert documents.FLAG in capsys.readouterr().out
