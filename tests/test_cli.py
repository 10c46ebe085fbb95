"""The command line, through its entry function, with fakes for the four parts."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import networkx
import pytest

import mtmc
from mtmc import cli
from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.cli import console, main
from mtmc.errors import EvaluatorError
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.protocols import EvaluatorSettings
from mtmc.search import Budget, load
from mtmc.store import Store

FAKES = ("policy=fake", "coder=fake", "evaluator=fake")
SEARCH = ("search", "task=softmax", *FAKES)
SMALL = (*SEARCH, "budget.evaluations=8", "dumps=false")


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and the fakes under the name "fake"."""
    monkeypatch.chdir(tmp_path)
    registries: tuple[tuple[Any, Any], ...] = (
        (POLICIES, FakePolicy),
        (CODERS, FakeCoder),
        (EVALUATORS, FakeEvaluator),
    )
    for registry, fake in registries:
        monkeypatch.setitem(registry, "fake", fake)
    return tmp_path


@pytest.fixture
def run_dir(fakes: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A finished run of 8 evaluations, with its dumps."""
    assert main([*SEARCH, "budget.evaluations=8", "out=a"]) == 0
    capsys.readouterr()
    return Path("a")


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that bad input gets. Nothing else is printed, and nothing on disk has changed."""
    before = files()
    assert main(list(argv)) == 2
    said = capsys.readouterr()
    assert files() == before
    assert said.out == ""
    assert said.err.startswith("mtmc: ") and said.err.endswith("\n") and said.err.count("\n") == 1
    return said.err.removeprefix("mtmc: ").rstrip("\n")


def sweep_rows() -> list[dict[str, str]]:
    """The lines of the sweep's CSV."""
    return list(csv.DictReader(Path("sweep/sweep.csv").read_text().splitlines()))


def process(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """A Python process of its own, without the fakes, in the present folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path(mtmc.__file__).parents[1])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False)


# --- search ----------------------------------------------------------------------------------------------------------


def test_a_search_says_what_it_found_and_where(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = load(run_dir)
    text = console.summary(result)
    best = result.tree.best
    gain = f"{result.best.speedup:.2f}x"
    assert re.search(r"^root +8 ms estimated$", text, re.MULTILINE)
    assert re.search(rf"^best +[\d.]+ ms estimated, {gain} as fast as the root \(estimated\)$", text, re.MULTILINE)
    assert re.search(r"^fake compiler +4 ms estimated$", text, re.MULTILINE)
    assert best.action is not None and best.action.sentence in text
    assert f"8 evaluations; the best is version {best.id}" in text
    for name in ("best.py", "tree.html", "report.md", "tree.png", "progress.png", "tree.json"):
        assert (run_dir / name).exists() and name in text
    assert (run_dir / "best.py").read_text() == best.source


def test_summary_goes_to_stdout_and_progress_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "out=a"]) == 0
    said = capsys.readouterr()
    assert said.out.rstrip("\n") == console.summary(load("a"))
    lines = said.err.splitlines()
    assert re.fullmatch(r"softmax: 1/8 evaluations, 1 versions, best 1\.00x \(8 ms estimated\), \d+ s", lines[0])
    assert lines[-1].startswith("softmax: 8/8 evaluations, 7 versions, best 2.58x")
    assert len(lines) == len(set(lines))


def test_no_other_file_is_written_and_the_default_folder_is_new_each_time(fakes: Path) -> None:
    assert main([*SMALL]) == main([*SMALL]) == 0
    assert {path.name for path in fakes.iterdir()} == {"runs"}
    folders = sorted(path.name for path in Path("runs").iterdir())
    assert len(folders) == 2
    assert all(re.fullmatch(r"softmax-\d{8}-\d{6}-\d+", name) for name in folders)
    inside = {path.name for path in Path("runs", folders[0]).iterdir()}
    assert inside <= {"run.sqlite", ".lock", "best.py", "config.yaml"}


def test_settings_reach_the_search_and_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("strategy=greedy", "strategy.follow=best", "seed=7", "batch=2", "repairs=1", "evaluator.failing=0.0")
    assert main([*SMALL, *given, "budget.depth=3", "out=a"]) == 0
    settings = load("a").record.settings
    assert settings["strategy"] == {"name": "greedy", "settings": {"follow": "best"}}
    assert (settings["seed"], settings["batch"], settings["repairs"]) == (7, 2, 1)
    assert settings["budget"] == asdict(Budget(8, depth=3))
    evaluator = settings["evaluator"]
    assert isinstance(evaluator, dict) and evaluator["name"] == "fake"
    assert "task" in Path("a/config.yaml").read_text()


def test_a_dry_run_prints_the_settings_only(capsys: pytest.CaptureFixture[str], fakes: Path) -> None:
    assert main([*SEARCH, "seed=5", "--dry-run"]) == 0
    assert "seed: 5\n" in capsys.readouterr().out
    assert files() == set()


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    drawn = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(leader, 4096):
                drawn.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        assert main([*SMALL, "out=a"]) == 0
    reader.join(10)
    os.close(leader)
    assert b"8/8" in drawn and b"best 2.58x" in drawn


# --- bad input -------------------------------------------------------------------------------------------------------

NO_MODEL = "def get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"
NO_EXPORT = """
import torch
N = 8
class Model(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x
def get_inputs():
    return [torch.ones(N, N)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((*SEARCH[:1], "task=nope.py", *FAKES), "there is no file 'nope.py'"),
        ((*SEARCH[:1], "task=softmx", *FAKES), "there is no task 'softmx': did you mean 'softmax'?"),
        ((*SEARCH, "strategy=mtcs"), "there is no strategy 'mtcs': did you mean mcts?"),
        ((*SEARCH, "budget.evalutions=8"), "did you mean budget.evaluations?"),
        ((*SEARCH, "budget.evaluations=-1"), "budget.evaluations cannot be -1: use 1 or more"),
        ((*SEARCH, "budget.wall_seconds=-1"), "budget.wall_seconds cannot be -1"),
        ((*SEARCH, "strategy.exploration=-1"), "mcts.exploration cannot be -1"),
        ((*SEARCH, "batch=0"), "batch cannot be 0"),
        ((*SEARCH, "batch=x"), "batch cannot be 'x': use a whole number"),
        (SEARCH[:1], "task is missing"),
        ((*SEARCH, "--fast"), "mtmc search does not know '--fast'"),
        ((*SEARCH, "--level=loud"), "invalid choice: 'loud'"),
        (("serch",), "there is no command 'serch': did you mean search?"),
        (("show",), "required: RUN"),
        (("show", "nope"), "there is no run in nope"),
        (("resume", "nope"), "there is no run in nope"),
        (("export", "nope", "--format", "dot"), "there is no run in nope"),
        (("report", "nope"), "there is no folder nope"),
        (("report", "."), "there is no run below ."),
        (("doctor", "x=1"), "mtmc doctor takes model.* only, not 'x=1'"),
        (("doctor", "model.timeout_s=5"), "no model is named"),
        (("search", "-m", "task=softmax,softmx", *FAKES), "there is no task 'softmx'"),
        (("search", "-m", "task=softmax", *FAKES, "strategy=mcts,mtcs"), "there is no strategy 'mtcs'"),
        (("search", "-m", "task=softmax", *FAKES, "strategy.widening=0.5,2"), "mcts.widening cannot be 2"),
        (("search", "-m", "task=softmax", "evaluator.target=sm_90,sm_99"), "unknown target 'sm_99'"),
        (("search", "-m", "task=softmax", *FAKES, "out=a,b"), "a sweep has one folder"),
        (("search", "-m", "task=softmax", *FAKES, "out=a", "hydra.sweep.dir=b"), "a sweep has one folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *argv)


def test_a_launcher_that_is_not_there(capsys: pytest.CaptureFixture[str], fakes: Path) -> None:
    assert main(["search", "-m", *SMALL[1:], "hydra/launcher=jobib"]) == 2
    assert "hydra/launcher/jobib" in capsys.readouterr().err
    assert files() == set()


def test_files_that_are_no_task(capsys: pytest.CaptureFixture[str], fakes: Path) -> None:
    Path("no_model.py").write_text(NO_MODEL)
    assert "defines no class `Model`" in refused(capsys, "search", "task=no_model.py", *FAKES)
    Path("broken.py").write_text("class Model(:\n")
    assert "line 1" in refused(capsys, "search", "task=broken.py", *FAKES)


def test_a_module_that_does_not_export(capsys: pytest.CaptureFixture[str], fakes: Path) -> None:
    Path("branch.py").write_text(NO_EXPORT)
    argv = ("search", "task=branch.py", "policy=fake", "evaluator=fake", "coder=rewriter", "--level=error")
    said = refused(capsys, *argv)
    assert "branch" in said and "line 6" in said


def test_folders_that_cannot_be_used(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *SMALL, "out=a")
    assert "already used" in said and "resume" in said
    Path("file").touch()
    assert "cannot be made" in refused(capsys, *SMALL, "out=file/run")
    said = refused(capsys, "search", "-m", *SMALL[1:], "out=a", "seed=0,1")
    assert "already used" in said
    Path("runs").touch()
    assert "give one as out=FOLDER" in refused(capsys, *SMALL)


def test_a_run_of_a_newer_version(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connection = sqlite3.connect(run_dir / "run.sqlite")
    with connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    for argv in (("resume", "a"), ("show", "a"), ("report", "a"), ("export", "a", "-f", "dot")):
        assert "newer version of mtmc" in refused(capsys, *argv)


# --- interruption and resume -----------------------------------------------------------------------------------------


def test_ctrl_c_says_how_to_go_on_and_resume_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show = console.PlainLines.__call__

    def stop(self: console.PlainLines, progress: Any) -> None:
        show(self, progress)
        if progress.evaluations >= 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(console.PlainLines, "__call__", stop)
    capsys.readouterr()
    assert main([*SMALL, "out=with space"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "mtmc: interrupted; go on with: mtmc resume 'with space'"
    assert load("with space").finished is None
    monkeypatch.setattr(console.PlainLines, "__call__", show)
    assert main(["resume", "with space"]) == 0
    assert load("with space").evaluations == 8


def test_resume_goes_on_and_may_have_a_greater_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SEARCH, "dumps=false", "budget.evaluations=12", "out=whole"]) == 0
    assert main([*SEARCH, "dumps=false", "budget.evaluations=5", "out=part"]) == 0
    capsys.readouterr()
    assert main(["resume", "part", "budget.evaluations=12"]) == 0
    said = capsys.readouterr()
    assert "12 evaluations are spent" in said.out
    assert [node.source for node in load("part").tree] == [node.source for node in load("whole").tree]
    assert "only budget.* and model.* may change" in refused(capsys, "resume", "part", "seed=3")
    assert "budget.depth cannot be 9" in refused(capsys, "resume", "part", "budget.depth=9")


def test_ctrl_c_before_the_root_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(self: FakeCoder, task: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeCoder, "root", stop)
    assert main([*SMALL]) == 130
    assert "nothing was kept" in capsys.readouterr().err
    assert files() == set()


def test_means_that_fail_on_the_way_say_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate, calls = FakeEvaluator._evaluate, []

    def fail(self: FakeEvaluator, request: Any) -> Any:
        calls.append(request)
        if len(calls) == 4:
            raise EvaluatorError("the workers are gone")
        return evaluate(self, request)

    monkeypatch.setattr(FakeEvaluator, "_evaluate", fail)
    assert main([*SMALL, "out=a"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "mtmc: the workers are gone; when that is fixed, go on with: mtmc resume a"
    assert main(["resume", "a"]) == 0
    assert load("a").evaluations == 8


# --- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_runs_every_combination_and_reports(fakes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("budget.evaluations=4,8", "strategy=mcts,greedy", "seed=0,1", "dumps=false", "out=sweep")
    assert main([*SEARCH, "-m", *given]) == 0
    said = capsys.readouterr()
    assert "8 runs into sweep" in said.err
    assert said.out.count("x estimated after ") == 8
    rows = sweep_rows()
    assert [(row["budget.evaluations"], row["strategy"], row["runs"], row["seeds"]) for row in rows] == [
        (budget, strategy, "2", "0 1") for budget in ("4", "8") for strategy in ("mcts", "greedy")
    ]
    assert not any(name.startswith("strategy.") for name in rows[0])
    assert float(rows[2]["best_speedup_mean"]) == pytest.approx(load("sweep/4").best.speedup)
    assert Path("sweep/sweep.png").stat().st_size > 1000
    assert {path.name for path in fakes.iterdir()} == {"sweep"}
    assert {path.name for path in Path("sweep/0").iterdir()} <= {"run.sqlite", ".lock", "best.py", "config.yaml"}
    assert sys.argv[0] != "mtmc" and "HYDRA_FULL_ERROR" not in os.environ

    Path("sweep/sweep.csv").unlink()
    assert main(["report", "sweep"]) == 0
    assert Path("sweep/sweep.csv").exists()
    assert "| task | budget.evaluations | strategy | runs |" in capsys.readouterr().out


def test_a_swept_setting_of_a_part_has_its_own_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "-m", "strategy.exploration=1,2", "budget.evaluations=3", "hydra.sweep.dir=sweep"]) == 0
    assert [row["strategy.exploration"] for row in sweep_rows()] == ["1.0", "2.0"]


def test_a_run_that_fails_does_not_end_the_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = FakeEvaluator._evaluate

    def fail(self: FakeEvaluator, request: Any) -> Any:
        if self.gain == 0.25:
            raise EvaluatorError("the workers are gone")
        if self.gain == 0.125:
            raise ZeroDivisionError("a bug")
        return evaluate(self, request)

    monkeypatch.setattr(FakeEvaluator, "_evaluate", fail)
    argv = [*SMALL, "-m", "evaluator.gain=0.5,0.25,0.125,0.75", "budget.evaluations=2", "out=sweep"]
    assert main(argv) == 2
    said = capsys.readouterr()
    assert "failed: the workers are gone" in said.err and "failed: ZeroDivisionError: a bug" in said.err
    assert said.err.rstrip().endswith("mtmc: 2 of 4 runs failed")
    assert Path("sweep/1/error.txt").read_text() == "the workers are gone\n"
    assert Path("sweep/2/error.txt").read_text().startswith("Traceback")
    assert {path.name for path in Path("sweep/1").iterdir()} <= {"error.txt", ".lock"}
    assert len(sweep_rows()) == 2
    assert main(["report", "sweep"]) == 2
    assert "sweep/1 failed: the workers are gone" in capsys.readouterr().err


class Opened(FakeEvaluator):
    """Counts what is open."""

    told: ClassVar[list[str]] = []

    def close(self) -> None:
        self.told.append(f"close {self.gain}")


@dataclass(frozen=True)
class Openable(EvaluatorSettings):
    """Settings of an evaluator that is opened."""

    gain: float = 0.5

    def open(self) -> Opened:
        Opened.told.append(f"open {self.gain}")
        return Opened(gain=self.gain)


def test_runs_of_a_sweep_share_an_evaluator_with_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EVALUATORS, "openable", Openable)
    monkeypatch.setattr(Opened, "told", [])
    small = ("search", "-m", "task=softmax", *FAKES[:2], "evaluator=openable", "budget.evaluations=2", "dumps=false")
    assert main([*small, "seed=0,1,2", "out=same"]) == 0
    assert Opened.told == ["open 0.5", "close 0.5"]
    with contextlib.closing(Store.read(Path("same/2"))) as store:
        assert store.settings()["evaluator"] == {"name": "openable", "settings": {"gain": 0.5}}
    Opened.told.clear()
    assert main([*small, "evaluator.gain=0.5,0.25", "out=other"]) == 0
    assert Opened.told == ["open 0.5", "close 0.5", "open 0.25", "close 0.25"] * 2  # all are checked, then run


def test_after_a_run_that_fails_the_evaluator_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EVALUATORS, "openable", Openable)
    monkeypatch.setattr(Opened, "told", [])
    fails = iter((True, False))

    def evaluate(self: FakeEvaluator, requests: Any, ours: Any = FakeEvaluator.evaluate) -> Any:
        if next(fails, False):
            raise EvaluatorError("the workers are gone")
        return ours(self, requests)

    monkeypatch.setattr(FakeEvaluator, "evaluate", evaluate)
    small = ("search", "-m", "task=softmax", *FAKES[:2], "evaluator=openable", "budget.evaluations=2", "dumps=false")
    assert main([*small, "seed=0,1", "out=sweep"]) == 2
    assert Opened.told == ["open 0.5", "close 0.5"] * 2
    assert not Path("sweep/1/error.txt").exists()


def test_runs_are_read_in_the_order_of_their_numbers() -> None:
    from mtmc.export.sweep import in_order

    names = [f"sweep/{number}" for number in (10, 9, 0, 11, 2)]
    assert [path.name for path in sorted(map(Path, names), key=in_order)] == ["0", "2", "9", "10", "11"]


# --- looking at runs -------------------------------------------------------------------------------------------------


def test_show_draws_the_tree(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = load(run_dir).tree
    assert main(["show", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("version  result            action")
    rows = [re.fullmatch(r" *(\d+) ([ .*]) (.{17}) ( *)(.*)", line) for line in lines[at + 1 : at + 1 + len(tree)]]
    found = {int(row[1]): row for row in rows if row}
    assert sorted(found) == list(range(len(tree)))
    for node in tree:
        assert len(found[node.id][4]) == 2 * tree.depth(node.id)
        assert found[node.id][5] == (node.action.sentence if node.action else "the reference")
    path = {node.id for node in tree.path(tree.best.id)}
    assert {node_id for node_id, row in found.items() if row[2] != " "} == path
    assert found[tree.best.id][2] == "*"


def test_a_large_tree_shows_the_way_to_its_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "dumps=false", "budget.evaluations=140", "out=a"]) == 0
    tree = load("a").tree
    assert len(tree) > 100
    capsys.readouterr()
    assert main(["show", "a"]) == 0
    assert (
        f"{len(tree) - len(tree.path(tree.best.id))} of {len(tree)} versions are not shown" in capsys.readouterr().out
    )
    assert main(["show", "a", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(tree)


def test_show_tells_all_about_a_version(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = load(run_dir).tree
    best = tree.best
    assert main(["show", "a", "best"]) == 0
    text = capsys.readouterr().out
    assert best.action is not None
    assert f"{best.id} of softmax, made from {best.parent_id}, {tree.depth(best.id)} steps from the root" in text
    assert re.search(rf"^action +{re.escape(best.action.sentence)}$", text, re.MULTILINE)
    assert re.search(rf"^runtime .* estimated, {tree.speedup(best.id):.2f}x the root's speed", text, re.MULTILINE)
    assert f"+++ nodes/{best.id}.py" in text
    assert main(["show", "a", "best", "--source"]) == 0
    assert capsys.readouterr().out == best.source
    assert main(["show", "a", str(best.id), "--diff"]) == 0
    assert capsys.readouterr().out.startswith(f"--- nodes/{best.parent_id}.py\n+++ nodes/{best.id}.py\n")
    assert main(["show", "a", "root"]) == 0
    assert tree.root.source.rstrip() in capsys.readouterr().out
    assert "there is no version '99': use a number from 0 to" in refused(capsys, "show", "a", "99")
    assert "show RUN VERSION --source" in refused(capsys, "show", "a", "--source")


def test_show_tells_why_a_version_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "dumps=false", "repairs=0", "evaluator.failing=0.9", "budget.evaluations=8", "out=a"]) == 0
    failed = next(node for node in load("a").tree if not node.outcome.ok)
    capsys.readouterr()
    assert main(["show", "a", str(failed.id)]) == 0
    text = capsys.readouterr().out
    assert failed.outcome.diagnosis is not None
    assert f"line 3: {failed.outcome.diagnosis.kind}: a fake" in text
    assert "3 | class ModelNew:" in text


def test_every_format_is_exported(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = len(load(run_dir).tree)
    for form in ("graphml", "json", "dot", "html", "png"):
        assert main(["export", "a", "-o", f"tree.{form}"]) == 0
    assert main(["export", "a", "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] != ""
    assert networkx.read_graphml("tree.graphml").number_of_nodes() == nodes
    assert len(json.loads(Path("tree.json").read_text())["nodes"]) == nodes
    assert Path("tree.dot").read_text().startswith("digraph")
    assert Path("tree.html").read_text() == (run_dir / "tree.html").read_text()
    assert Path("tree.png").read_bytes().startswith(b"\x89PNG")
    assert "did you mean png?" in refused(capsys, "export", "a", "-o", "tree.pgn")
    assert "add -o FILE.png" in refused(capsys, "export", "a", "-f", "png")
    assert "the format is missing" in refused(capsys, "export", "a")
    assert "tree.dot/x cannot be written" in refused(capsys, "export", "a", "-f", "dot", "-o", "tree.dot/x")


def test_report_prints_a_runs_report(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().out.startswith("# softmax: report of a run\n")


# --- the command itself ----------------------------------------------------------------------------------------------


def test_nothing_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    helped = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == helped
    assert all(name in helped for name in cli.COMMANDS)


def test_search_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--help"]) == 0
    helped = capsys.readouterr().out
    for name in ("budget.evaluations=", "strategy.exploration", "strategy.follow", "evaluator.target", "seed="):
        assert name in helped


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(self: FakeCoder, task: Any) -> Any:
        raise ModuleNotFoundError("No module named 'torch.fx'", name="torch.fx")

    monkeypatch.setattr(FakeCoder, "root", missing)
    assert "the package torch is not installed" in refused(capsys, *SMALL)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mtmc {mtmc.__version__}\n"


def test_log_level_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "out=a"]) == 0
    assert "INFO mtmc" not in capsys.readouterr().err
    assert main([*SMALL, "out=b", "--level", "info"]) == 0
    assert "INFO mtmc.search" in capsys.readouterr().err


def test_help_loads_nothing_heavy_and_the_module_is_the_command() -> None:
    heavy = ("torch", "triton", "hydra", "omegaconf", "langgraph", "litellm", "matplotlib", "rich", "networkx")
    code = f"import sys; from mtmc.cli import main; main([]); sys.exit(any(name in sys.modules for name in {heavy}))"
    assert process("-c", code).returncode == 0
    done = process("-m", "mtmc", "serch")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"mtmc: there is no command 'serch': did you mean search?\n"


def test_a_reader_that_has_enough_is_no_error(run_dir: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process("-m", "mtmc", "show", "a", "root", "--source", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
