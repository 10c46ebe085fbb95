"""Collecting trees: cut off, killed, gone on with, refused; the command line."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.cli import main
from mtmc.conf.collect import compose_collect
from mtmc.errors import ConfigError, EvaluatorError, RunError
from mtmc.evaluate import EVALUATORS
from mtmc.evaluate.gpu import GpuSettings
from mtmc.evaluate.shared import EvaluatorServer
from mtmc.outcome import Outcome
from mtmc.rl import collect as collecting
from mtmc.rl import worker
from mtmc.rl.collect import _hand_out, collect, of_split, split_by_device, write_collection
from mtmc.rl.dataset import read_tables
from mtmc.rl.generator import Generated, generate, task_text
from mtmc.rl.given import given_tasks
from mtmc.rl.schema import split_of
from mtmc.rl.settings import CollectSettings
from mtmc.rl.worker import Screening, TreeResult, WorkerConfig, grow, grow_task
from mtmc.task import Task, task_from_source
from mtmc.tree import source_hash
from tests.rl.recorded import TASK_TEXT, Drawn

AS = {"name": "drawn", "settings": {}}
SETTINGS = CollectSettings(tasks=1, evaluations=12, batch=2, depth=4)


@pytest.fixture(scope="module")
def task() -> Task:
    return task_from_source(TASK_TEXT, "rows")


def config(out: Path, **changes: Any) -> WorkerConfig:
    return replace(WorkerConfig(SETTINGS, out, (), AS, {}), **changes)


def plain(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: table.to_pylist() for name, table in read_tables(out).items()}


def test_tasks_of_one_split_alone() -> None:
    texts = [generate(0, index) for index in range(60)]
    parts = {split: list(of_split(iter(texts), split)) for split in ("train", "validation", "test")}
    assert all(split_of(source_hash(each.text)) == split for split, part in parts.items() for each in part)
    assert sum(map(len, parts.values())) == 60 and min(map(len, parts.values())) > 0
    assert list(of_split(iter(texts), "")) == texts
    with pytest.raises(ConfigError, match="split cannot be 'held': use one of train, validation, test"):
        CollectSettings(split="held")  # type: ignore[arg-type]


def test_a_tree_that_was_cut_off_goes_on_as_if_nothing_had_been(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grow_task(config(tmp_path / "whole"), task, Screening(Drawn(), AS), 0.0).status == "finished"
    evaluator = Drawn()
    monkeypatch.setattr(worker, "time", SimpleNamespace(time=lambda: evaluator.count, monotonic=lambda: 0.0))
    late = config(tmp_path / "cut", deadline=5)  # a version takes a second
    assert grow_task(late, task, Screening(evaluator, AS), 0.0).status == "cut off"
    part = plain(tmp_path / "cut" / "parts" / "rows")
    assert 5 <= len(part["nodes"]) < 12 and not part["tasks"][0]["finished"]
    before = evaluator.count
    result = grow_task(config(tmp_path / "cut"), task, Screening(evaluator, AS), 0.0)
    assert result.status == "finished" and result.evaluations == evaluator.count - before == 12 - before
    assert plain(tmp_path / "cut" / "parts" / "rows") == plain(tmp_path / "whole" / "parts" / "rows")
    assert worker.done(tmp_path / "cut", "rows")


def test_a_killed_tree_pays_for_nothing_twice(task: Task, tmp_path: Path) -> None:
    class Killed(BaseException):
        """What no handler in the search expects."""

    class Dying(Drawn):
        def evaluate(self, requests: Any) -> list[Outcome]:
            if self.count == 7:
                raise Killed
            return super().evaluate(requests)

    evaluator = Dying()
    with pytest.raises(Killed):
        grow_task(config(tmp_path), task, Screening(evaluator, AS), 0.0)
    assert evaluator.count == 7 and not worker.done(tmp_path, "rows")
    rest = Drawn(count=7)
    grow_task(config(tmp_path), task, Screening(rest, AS), 0.0)
    assert rest.count == 12


def test_a_benchmarks_problem_is_refused_and_stays_refused(tmp_path: Path) -> None:
    from mtmc.agents.policies.learned.graphs import graph_facts, graph_key
    from mtmc.rewrite.exported import export_graph
    from mtmc.rl.generator import task_of

    generated = generate(0, 6)
    key = graph_key(graph_facts(export_graph(task_of(generated))))
    result = grow(config(tmp_path, excluded={key: "level1/1_this"}), generated, 0)
    assert result.status == "refused" and "level1/1_this" in result.reason
    assert worker.done(tmp_path, generated.name)
    assert "level1/1_this" in (tmp_path / "refused" / f"{generated.name}.txt").read_text()


def test_a_bug_in_one_tree_is_told_and_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Task:
        raise KeyError("bug")

    monkeypatch.setattr(worker, "_admitted", broken)
    result = grow(config(tmp_path), generate(0, 6), 0)
    assert result.status == "failed" and result.reason == "KeyError: 'bug'"
    assert not worker.done(tmp_path, result.name)

    def gone(*_: object) -> Task:
        raise EvaluatorError("no GPU")

    monkeypatch.setattr(worker, "_admitted", gone)
    assert grow(config(tmp_path), generate(0, 6), 0).reason == "EvaluatorError: no GPU"


def test_a_collection_ends_where_every_tree_fails(tmp_path: Path) -> None:
    class Failing:
        def submit(
            self, function: object, given: WorkerConfig, generated: Generated, number: int
        ) -> Future[TreeResult]:
            future: Future[TreeResult] = Future()
            status = "failed" if number not in (0, 2) else "finished"
            future.set_result(TreeResult(generated.name, status, reason="no GPU"))  # type: ignore[arg-type]
            return future

    seen: list[TreeResult] = []
    coming = enumerate(generate(0, index) for index in range(40))
    with pytest.raises(RunError, match="8 trees failed one after another, the last with: no GPU"):
        many = replace(SETTINGS, tasks=40)
        _hand_out(Failing(), 1, coming, config(tmp_path, settings=many), seen.append)  # type: ignore[arg-type]
    assert len(seen) == 3 + 8, "one that failed between two others ended nothing"


def test_collect_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EVALUATORS, "drawn", Drawn)
    command = ["collect", "tasks=2", "first=5", "evaluations=4", "batch=2", "evaluator=drawn", "jobs=1", "out=trees"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "transitions of 8 versions of 2 tasks in trees" in said.out
    assert "finished, 4 evaluations" in said.err
    summary = json.loads(Path("trees/collect.json").read_text())
    assert summary["evaluations"] == 8 and set(summary["files"]) == {"tasks", "nodes", "transitions"}
    before = Path("trees/transitions.parquet").read_bytes()
    assert main(command) == 0  # nothing is left to do
    assert "evaluations a second" not in capsys.readouterr().err
    assert Path("trees/transitions.parquet").read_bytes() == before
    assert main([*command, "seed=3"]) == 2
    assert "holds a collection with seed=0, not 3" in capsys.readouterr().err
    runs = [str(run) for run in sorted(Path("trees/runs").iterdir())]
    assert main(["dataset", *runs, "-o", "again"]) == 0
    assert plain(Path("again")) == plain(Path("trees"))
    assert main(["dataset", "again", "trees", runs[0], "-o", "whole"]) == 0  # of several trees of one task, one is kept
    assert plain(Path("whole")) == plain(Path("trees"))
    Path("checkout/level1").mkdir(parents=True)
    Path("checkout/level1/1_same.py").write_text(task_text(0, 5))
    assert main(["dataset", "trees", "-o", "others", "--benchmark", "checkout"]) == 0
    said = capsys.readouterr().out
    assert (
        "left out g0_00005: it is the benchmark's level1/1_same" in said and "problems of the benchmark: 1 of" in said
    )
    assert {row["name"] for row in plain(Path("others"))["tasks"]} == {"g0_00006"}
    assert main(["dataset", runs[0], "-o", "edits.jsonl", "--format", "sft"]) == 0
    assert Path("edits.jsonl").read_text().count("\n") >= 1
    assert main(["dataset", runs[0], runs[0], "-o", "twice"]) == 2
    assert "of one task" in capsys.readouterr().err


def test_settings_are_checked() -> None:
    settings, part, out = compose_collect(["tasks=3", "minutes=2", "evaluator=lab", "evaluator.workers=1", "out=x"])
    assert (settings.tasks, settings.minutes, part.name, part.settings["workers"], out) == (3, 2.0, "lab", 1, "x")
    for text, message in (
        ("tasks=0", "tasks cannot be 0: use 1 or more"),
        ("tasks=many", "tasks cannot be 'many': use a whole number"),
        ("blind=2", "blind cannot be 2"),
        ("minutes=0", "minutes cannot be 0"),
        ("task=softmax", "there is no setting 'task': did you mean tasks"),
        ("strategy=mcts", "there is no setting 'strategy'"),
        ("suite=kernelbench", "suite cannot be 'kernelbench'"),
        ("path=tasks", "path=tasks is of a suite: add suite=files"),
    ):
        with pytest.raises(ConfigError, match=message):
            compose_collect([text])


def test_a_suites_tasks_are_grown_as_far_as_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EVALUATORS, "drawn", Drawn)
    Path("own/parts").mkdir(parents=True)
    Path("own/parts/first.py").write_text(TASK_TEXT)
    Path("own/parts/second.py").write_text(task_text(0, 6))
    command = [
        "collect",
        "suite=files",
        "path=own",
        "evaluations=3",
        "batch=2",
        "evaluator=drawn",
        "jobs=1",
        "out=trees",
    ]
    assert main(command) == 2
    assert "licence" in capsys.readouterr().err
    assert main([*command, "licence=ack"]) == 0, "three hundred were asked for"
    said = capsys.readouterr()
    assert "versions of 2 tasks" in said.out and "not finished" not in said.out
    assert "[2/2, " in said.err
    assert sorted(each.name for each in Path("trees/parts").iterdir()) == ["parts_first", "parts_second"]
    assert main([*command, "licence=ack", "suite=blocks", "path="]) == 2
    assert "holds a collection with suite=files, not blocks" in capsys.readouterr().err
    assert main([*command, "licence=ack", "first=2"]) == 2
    assert "suite=files has no task from number 2 on" in capsys.readouterr().err


def test_a_collection_of_before_goes_on(tmp_path: Path) -> None:
    collecting._check_folder(SETTINGS, AS, tmp_path)
    kept = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({k: v for k, v in kept.items() if k not in ("suite", "path")}))
    collecting._check_folder(SETTINGS, AS, tmp_path)
    with pytest.raises(ConfigError, match="with suite=, not blocks"):
        collecting._check_folder(replace(SETTINGS, suite="blocks"), AS, tmp_path)


def test_all_blocks_can_be_grown() -> None:
    blocks = list(given_tasks(CollectSettings(suite="blocks")))
    assert len({each.name for each in blocks}) == len(blocks) > 100 and all(each.trusted for each in blocks)
    later = list(given_tasks(CollectSettings(suite="blocks", first=7)))
    assert later == blocks[7:], "a tree's draws hang on its place, not on where a collection begins"


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no tree was recorded"):
        write_collection(SETTINGS, AS, tmp_path)


def test_each_gpu_gets_its_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtmc.evaluate import devices

    pair = [replace(devices.Device.host(), index=str(index)) for index in range(2)]
    monkeypatch.setattr(devices, "visible_devices", lambda asked: pair)
    monkeypatch.setattr(collecting, "cores", lambda: 16)
    split = split_by_device(GpuSettings(reuse=32))
    assert [(each.devices, each.builders, each.reuse) for each in split] == [("0", 4, 32), ("1", 4, 32)]
    drawn = Drawn()
    assert split_by_device(drawn) == [drawn]


def test_an_evaluator_that_is_gone_ends_the_collection(tmp_path: Path, task: Task) -> None:
    from mtmc.evaluate.shared import RemoteEvaluator

    server = EvaluatorServer(Drawn())
    remote = Screening(RemoteEvaluator(server.address, server.key), AS)
    assert grow_task(config(tmp_path / "one"), task, remote, 0.0).status == "finished"
    server.close()
    with pytest.raises(EvaluatorError, match="gone"):
        RemoteEvaluator(server.address, server.key)


def test_a_collection_asks_for_more_tasks_than_it_has(tmp_path: Path) -> None:
    """A deadline that has passed: nothing is grown, and that is said."""
    with pytest.raises(RunError, match="no tree was recorded"):
        collect(replace(SETTINGS, minutes=1e-6), Drawn(), AS, tmp_path, lambda result: None)
