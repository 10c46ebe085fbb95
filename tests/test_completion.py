"""mtmc completion: what Tab offers, asked for directly and in real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mtmc.agents.policies import POLICIES
from mtmc.cli import COMMANDS, main
from mtmc.cli.candidates import words_of
from mtmc.cli.completion import SHELLS, offered
from mtmc.conf.offered import OFFERED
from mtmc.search.strategies import STRATEGIES
from tests.acceptance.documents import ROOT


def words(line: str) -> list[str]:
    return [word for word, _ in offered(line)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mtmc sea", ["search"]),
        ("FOO=1 /usr/bin/mtmc sea", ["search"]),
        ("mtmc search --dr", ["--dry-run"]),
        ("mtmc search --cfg ", ["job", "hydra", "all"]),
        ("mtmc search --cfg=j", ["--cfg=job"]),
        ("mtmc search --level inf", ["info"]),
        ("mtmc search strategy=mc", ["strategy=mcts"]),
        ("mtmc search strategy=mcts strategy.exp", ["strategy.exploration=", "strategy.expansions="]),
        ("mtmc search strategy=beam strategy.", ["strategy.width=", "strategy.branch="]),
        ("mtmc search strategy=nobody strategy.exploration", ["strategy.exploration="]),
        (
            "mtmc search -m strategy=mcts,be",
            ["strategy=mcts,best_of_n", "strategy=mcts,best_first", "strategy=mcts,beam"],
        ),
        ("mtmc search -m strategy=beam,be", ["strategy=beam,best_of_n", "strategy=beam,best_first"]),
        ("mtmc search strategy=mcts,be", []),
        ("mtmc search task=bias", ["task=bias_gelu"]),
        ("mtmc search dumps=", ["dumps=true", "dumps=false"]),
        ("mtmc search policy='com", ["policy=compact"]),
        ("mtmc search --level info task=bias", ["task=bias_gelu"]),
        ("mtmc resume run strat", []),
        ("mtmc resume run budget.ev", ["budget.evaluations="]),
        ("mtmc bench suite=kern", ["suite=kernelbench"]),
        ("mtmc bench task", []),
        ("mtmc optimize m:f budget", ["budget=", "budget.evaluations=", "budget.wall_seconds="]),
        ("mtmc train algorithm=gr", ["algorithm=grpo"]),
        ("mtmc train coder=x algor", []),
        ("mtmc train gain=boosted tre", ["trees="]),
        ("mtmc collect evaluator=la", ["evaluator=lab"]),
        ("mtmc doctor model.na", ["model.name="]),
        ("mtmc export run --format g", ["graphml"]),
        ("mtmc dataset run -f p", ["parquet", "preference"]),
        ("mtmc show run b", ["best"]),
        ("mtmc cache c", ["clear"]),
        ("mtmc completion ", [*SHELLS, "--help", "--level", "--json"]),
        ("mtmc nobody ", []),
        ("mtmc show 'run b", []),
    ],
)
def test_what_is_offered(line: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    offer = words(line)
    assert offer[: len(found)] == found and (len(offer) == len(found) or len(offer) > 2 == len(found) - 1)


def test_all_names_are_offered() -> None:
    assert words("mtmc ")[: len(COMMANDS)] == list(COMMANDS)
    assert words("mtmc search strategy=") == [f"strategy={name}" for name in STRATEGIES]
    assert set(words("mtmc search policy=")) >= {f"policy={name}" for name in POLICIES}
    assert set(OFFERED) == {name for name, command in COMMANDS.items() if command.overrides}


def test_what_is_offered_says_what_it_is() -> None:
    told = dict(offered("mtmc search "))
    assert told["seed="] == "a whole number" and told["strategy="].startswith("mcts, greedy")
    assert dict(offered("mtmc "))["watch"] == COMMANDS["watch"].summary


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my runs").mkdir()
    (tmp_path / "my runs" / "one").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / "conf" / "strategy").mkdir(parents=True)
    (tmp_path / "conf" / "strategy" / "wide.yaml").touch()
    assert words("mtmc show m") == ["my runs/"] and words(r"mtmc show my\ runs/") == ["my runs/one/"]
    assert words("mtmc show ~/my") == ["~/my runs/"] and ".hidden" in words("mtmc show .h")
    assert words("mtmc search task=./my") == ["task=./my runs/"] and words("mtmc show nowhere/") == []
    assert words("mtmc search --config-dir conf strategy=w") == ["strategy=wide"]


def test_words_of_a_line() -> None:
    assert words_of("mtmc") == [""] and words_of("mtmc ") == [""] and words_of("") == [""]
    assert words_of("mtmc a 'b c") == ["a", "b c"] and words_of("mtmc a\\ b c") == ["a b", "c"]
    assert words_of("mtmc a#b ") == ["a#b", ""]


def test_scripts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        assert "mtmc completion _words" in capsys.readouterr().out
    for wrong in (["tcsh"], ["bash", "x"], ["_words"], []):
        assert main(["completion", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to be in, whose bin/ has an mtmc, with the scripts of the shells."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mtmc"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mtmc "$@"\n')
    program.chmod(0o755)
    for shell in SHELLS:
        shutil.copy(ROOT / "mtmc" / "cli" / "shells" / f"completion.{shell}", tmp_path)
    (tmp_path / "my runs").mkdir()
    return tmp_path


def typed(shell: list[str], start: str, keys: str, until: str, place: Path) -> str:
    """What an interactive shell shows once `keys` are typed. start: a command before. until: what is waited for."""
    environment = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb", "PS1": "$ "}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(place)
        os.execvpe(shell[0], shell, environment)
    shown = ""

    def read(wanted: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 300
        while wanted not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")

    try:
        os.write(terminal, f"{start}; echo ready-$((1+1))\n".encode())
        read("ready-2")
        shown = ""
        os.write(terminal, keys.encode())
        read(until)
        return shown
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


TAB = "\t"
BASH = (["bash", "--norc", "--noprofile", "-i"], "source ./completion.bash")
ZSH = (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u; source ./completion.zsh")


@pytest.mark.parametrize(
    ("shell", "keys", "shown"),
    [
        (BASH, f"mtmc search strategy=mc{TAB}policy=com{TAB}X", "mtmc search strategy=mcts policy=compact X"),
        (BASH, f"mtmc sea{TAB}task=bia{TAB}", "mtmc search task=bias_gelu "),
        (BASH, f"mtmc search budget.ev{TAB}4", "mtmc search budget.evaluations=4"),
        (BASH, f"mtmc show my{TAB}", "mtmc show my\\ runs/"),
        (ZSH, f"mtmc search strategy=mc{TAB}", "strategy=mcts"),
        (ZSH, f"mtmc search budget.ev{TAB}4", "budget.evaluations=4"),
    ],
)
def test_tab_in_a_shell(shell: tuple[list[str], str], keys: str, shown: str, place: Path) -> None:
    command, start = shell
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    assert shown in typed(command, start, keys, shown, place)


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_tab_in_fish(place: Path) -> None:
    script = 'source ./completion.fish; complete -C "mtmc search strategy=mc"'
    environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place)}
    done = subprocess.run(
        ["fish", "-c", script], cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["strategy=mcts"]
