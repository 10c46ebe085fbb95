"""The README's snippets and the examples, run as they stand, in order and in one folder, with a quarter of the evaluations.

The shortest program has a process of its own; all others share the one of the tests, and its warm lab.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mtmc.cli import main
from tests.acceptance.documents import ROOT, commands, fewer, snippets

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, check=False, timeout=300
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout


def test_the_shortest_program(tmp_path: Path) -> None:
    program = snippets("README.md", "python")[0].replace("budget=8", "budget=2")
    printed = run([sys.executable, "-c", program], tmp_path)
    assert "estimated" in printed and "class ModelNew" in printed


def test_the_task_and_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snippet whose first line is the name of a file is that file; the commands go on with it."""
    for snippet in snippets("README.md", "python"):
        name = re.match(r"# (\w+\.py)\n", snippet)
        if name is not None:
            (tmp_path / name[1]).write_text(snippet, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = []
    for snippet in snippets("README.md", "bash"):
        for words in commands(snippet):
            assert words[0] == "mtmc"
            once = ["--once"] if words[1] == "watch" else []  # or it serves until it is stopped
            assert main([*fewer(words[1:], 4), *once]) == 0, words
            ran.append(words[1])
    assert ran == ["search", "watch", "show", "report", "resume", "doctor"]
    assert list((tmp_path / "runs").rglob("best.py"))


@pytest.mark.parametrize(
    ("example", "arguments", "expected"),
    [
        ("library.py", ["softmax_gelu", "4", "saved"], "saved in"),
        ("optimize_module.py", [], "the result is the same"),
        ("custom_optimization.py", [], "of them trimmed"),
    ],
)
@pytest.mark.usefixtures("kept_registries")
def test_examples(
    example: str,
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")
    assert expected in capsys.readouterr().out


def test_the_custom_task_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = ROOT / "examples" / "custom_task.py"
    assert main(["search", f"task={task}", "budget.evaluations=3", "out=run"]) == 0
    assert "class ModelNew" in (tmp_path / "run" / "best.py").read_text(encoding="utf-8")
