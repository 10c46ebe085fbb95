"""GPU workers: which GPU takes the next candidate."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from mtmc.evaluate.measure.gpu_workers import GpuWorkers
from mtmc.evaluate.measure.spare_processes import Process, SpareProcesses
from mtmc.evaluate.measure.worker_settings import GpuWorkerSettings
from mtmc.evaluate.pool.job import JobResult
from mtmc.hardware import hardware


def test_a_worker_that_knows_the_task_is_taken_first() -> None:
    workers = GpuWorkers(["a", "b"])
    taken = []
    for task in ("x", "y", "x", "x", "y"):
        with workers.one_for(task) as worker:
            taken.append(worker)
    assert taken == ["a", "b", "a", "a", "b"]


def test_an_idle_worker_is_better_than_a_known_one_that_is_at_work() -> None:
    workers = GpuWorkers(["a", "b"])
    with workers.one_for("x") as first, workers.one_for("x") as second:
        assert (first, second) == ("a", "b")
    with workers.one_for("x") as first:
        assert first == "a", "both know it: the one that has known it longest"


def test_baselines_are_made_where_their_task_is_at_home_and_homes_are_spread() -> None:
    workers = GpuWorkers(["a", "b"])
    with workers.one_for("x") as first:
        assert workers.home("x") == first == "a", "also while it is at work"
        assert [workers.home(task) for task in ("y", "z", "w")] == ["b", "a", "b"]
    with workers.one_for("y") as worker:
        assert worker == "b", "the task was admitted there"


def test_who_finds_none_waits_for_the_next() -> None:
    workers = GpuWorkers(["a"])
    got = []

    def wait() -> None:
        with workers.one_for("y") as worker:
            got.append(worker)

    waiting = threading.Thread(target=wait)
    with workers.one_for("x"):
        waiting.start()
        waiting.join(0.05)
        assert not got
    waiting.join(300.0)
    assert got == ["a"]


def test_a_process_that_ended_before_it_was_needed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def spawn(self: SpareProcesses, locked: bool) -> object:
        process = Process(str(len(made)), Future())
        if len(made) < 2:  # while another process held all of the device's memory, say
            process.end.set_result(
                JobResult("error", output="Traceback (most recent call last):\n  x\nOutOfMemory: none")
            )
        made.append(process)
        return process

    monkeypatch.setattr(SpareProcesses, "spawn", spawn)
    settings = GpuWorkerSettings("0", "0", hardware("H100"), tmp_path, "host", spares=3)
    processes = SpareProcesses(settings, tmp_path, str(tmp_path / "oracle"))
    try:
        processes.fill()
        with caplog.at_level(logging.WARNING):
            assert processes.fresh(locked=True).token == "2"
    finally:
        processes.close()
    assert (
        caplog.messages == ["a process for candidates of GPU 0: it ended before it was needed: OutOfMemory: none"] * 2
    )
    assert len(made) == 6, "each that was taken has its successor"


@pytest.mark.parametrize(("spares", "taken", "made"), [(6, 3, 0), (4, 3, 0), (3, 3, 1), (2, 3, 2)])
def test_in_silence_no_process_is_made_as_long_as_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spares: int, taken: int, made: int
) -> None:
    spawned = []

    def spawn(self: SpareProcesses, locked: bool) -> object:
        spawned.append(locked)
        return Process(str(len(spawned)), Future())

    monkeypatch.setattr(SpareProcesses, "spawn", spawn)
    settings = GpuWorkerSettings("0", "0", hardware("H100"), tmp_path, "host", spares=spares)
    processes = SpareProcesses(settings, tmp_path, str(tmp_path / "oracle"))
    try:
        processes.fill()
        before = len(spawned)
        with processes.none_made():
            tokens = {processes.fresh(locked=True).token for _ in range(taken)}
            assert (len(tokens), len(spawned) - before) == (taken, made)
        assert len(spawned) == before + taken and processes._ready.qsize() == spares
        processes.fresh(locked=True)
        assert len(spawned) == before + taken + 1, "outside, each has its successor at once"
    finally:
        processes.close()
    with processes.none_made():
        pass
    assert len(spawned) == before + taken + 1, "what is closed makes none"
