"""The command that runs all benchmarks of a GPU: what it runs, what it keeps, and how it ends what does not end."""

from __future__ import annotations

import re
import signal
import subprocess
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks import remeasure
from benchmarks.remeasure import ROOT, STEPS, Step, said, table, words
from mtmc.bench.settings import BenchSettings

WRITES = '-c \'import sys; open(sys.argv[1] + ".md", "a").write("x"); sys.exit({status})\' {{out}}'
ENDLESS = """-c 'import sys, time
try:
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    open(sys.argv[1] + ".md", "w").write("cut off")
' {out}"""


def test_each_step_runs_once_where_it_ends_well(tmp_path: Path) -> None:
    steps = [Step("good", 60.0, WRITES.format(status=0)), Step("bad", 60.0, WRITES.format(status=3))]
    for _ in range(2):
        ended = remeasure.remeasure(steps, tmp_path / "out", 120.0, tmp_path / "bundle" / "all.tar.gz")
    assert [ended[name].status for name in ("good", "bad")] == [0, 3]
    assert (tmp_path / "out" / "good.md").read_text() == "x"
    assert (tmp_path / "out" / "bad.md").read_text() == "xx", "what ended badly is run again"
    with tarfile.open(tmp_path / "bundle" / "all.tar.gz") as archive:
        assert {"out/good.md", "out/bad.md", "out/steps.json", "out/good.log"} <= set(archive.getnames())
    assert "| bad | status 3 after" in table(steps, ended)


def test_a_step_that_is_told_to_end_writes_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remeasure, "END_S", 120.0)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under nohup
    try:
        process = remeasure.started(remeasure.words(Step("endless", 1.0, ENDLESS), tmp_path), subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        remeasure.end(process)
    assert (tmp_path / "endless.md").read_text() == "cut off"


def test_a_step_whose_time_is_up_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    step = Step("endless", 1.0, '-c \'import subprocess; subprocess.run(["sleep", "600"])\' {out}')
    ended = remeasure.remeasure([step], tmp_path, 120.0)
    assert ended["endless"].status is None and said(ended["endless"]).startswith("its time was up after")


def test_nothing_is_begun_that_has_no_time(tmp_path: Path) -> None:
    steps = [Step("good", 60.0, WRITES.format(status=0))]
    assert remeasure.remeasure(steps, tmp_path, 10.0) == {}
    assert "not begun" in table(steps, {})


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_has_a_command_that_exists(step: Step, tmp_path: Path) -> None:
    _, *command = words(step, tmp_path)
    assert str(tmp_path / step.name) in " ".join(command)
    if command[:3] == ["-m", "mtmc", "bench"]:
        known = {field.name for field in fields(BenchSettings)} | {"policy", "batch", "budget", "evaluator", "out"}
        assert {word.partition("=")[0].partition(".")[0] for word in command[3:]} <= known
        return
    path = ROOT / (command[1].replace(".", "/") + ".py" if command[0] == "-m" else command[0])
    text = path.read_text() + (ROOT / "benchmarks" / "common.py").read_text()
    assert [word for word in re.findall(r"--[a-z-]+", step.command) if f'"{word}"' not in text] == []
