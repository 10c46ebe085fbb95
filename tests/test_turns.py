"""Parts of a benchmark that prepare at the same time and are timed one after another."""

from __future__ import annotations

import json
import os
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks.common import Report
from benchmarks.turns import Turns, together

PART = """
    import argparse, os, signal, sys, time
    from pathlib import Path
    from benchmarks.common import Report
    from benchmarks.turns import Turns

    options = argparse.ArgumentParser()
    for name in ("models", "turns", "log", "dies"):
        options.add_argument(f"--{name}")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    turns, log = Turns.read(given.turns), Path(given.log)

    def note(what):
        with log.open("a") as file:
            file.write(f"{what} {given.models}\\n")

    with Report("A part", given.out) as report:
        report.say(f"\\n## {given.models}\\n")
        if given.models == given.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        note("prepared")
        turns.wait(given.models)
        with turns.mine():
            note("begins")
            time.sleep(0.3)
            note("ends")
        report.say(f"{len(os.sched_getaffinity(0))} cores")
        report.data["models"] = {given.models: {"ms": 1.0}}
"""


def run(tmp_path: Path, parts: list[str], dies: str = "") -> tuple[bool, list[str], str, dict[str, object]]:
    """Whether all ended well, what they noted, and the report as text and data."""
    script = tmp_path / "part.py"
    script.write_text(textwrap.dedent(PART), encoding="utf-8")
    log, out = tmp_path / "log", tmp_path / "whole"
    with Report("The whole", out) as report:
        good = together(str(script), parts, [f"--log={log}", f"--dies={dies}"], 60.0, report)
    data = json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in tmp_path.glob("whole*")) == ["whole.json", "whole.md"]
    return good, log.read_text(encoding="utf-8").splitlines(), Path(f"{out}.md").read_text(encoding="utf-8"), data


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


def test_turns_come_once_all_have_prepared_and_one_by_one(tmp_path: Path) -> None:
    good, notes, text, data = run(tmp_path, ["first", "second", "third"])
    assert good
    assert [note.split()[0] for note in notes] == ["prepared"] * 3 + ["begins", "ends"] * 3
    assert all(notes[at].split()[1] == notes[at + 1].split()[1] for at in (3, 5, 7))
    assert data["models"] == {name: {"ms": 1.0} for name in ("first", "second", "third")}
    assert text.count("Command: `") == 1 and text.index("## first") < text.index("## second")
    assert f"\n{max(1, len(os.sched_getaffinity(0)) // 3)} cores" in text


def test_nobody_waits_for_a_part_that_was_killed(tmp_path: Path) -> None:
    started = time.monotonic()
    good, notes, text, data = run(tmp_path, ["first", "second"], dies="second")
    assert not good and data["models"] == {"first": {"ms": 1.0}}
    assert notes == ["prepared first", "begins first", "ends first"]
    assert "**whole-second" in text
    assert time.monotonic() - started < 50


def test_turns_are_read_from_their_argument(tmp_path: Path) -> None:
    turns = Turns(tmp_path / "a:b", 3, 12.5)
    assert Turns.read(turns.argument) == turns


def test_waiting_ends(tmp_path: Path) -> None:
    Turns(tmp_path, 2, time.time() + 0.3).wait("one")
    assert [path.name for path in tmp_path.iterdir()] == ["one.ready"]
