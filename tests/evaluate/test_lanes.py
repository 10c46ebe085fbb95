"""Lanes: which GPU takes the next candidate."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from mtmc.evaluate.measure import lane as lane_module
from mtmc.evaluate.measure.lane import Lane, LaneSettings
from mtmc.evaluate.measure.lanes import Lanes
from mtmc.evaluate.pool.job import JobResult
from mtmc.hardware import hardware


def test_a_lane_that_knows_the_task_is_taken_first() -> None:
    lanes = Lanes(["a", "b"])
    taken = []
    for task in ("x", "y", "x", "x", "y"):
        with lanes.one_for(task) as lane:
            taken.append(lane)
    assert taken == ["a", "b", "a", "a", "b"]


def test_an_idle_lane_is_better_than_a_known_one_that_is_at_work() -> None:
    lanes = Lanes(["a", "b"])
    with lanes.one_for("x") as first, lanes.one_for("x") as second:
        assert (first, second) == ("a", "b")
    with lanes.one_for("x") as first:
        assert first == "a", "both know it: the one that has known it longest"


def test_who_finds_none_waits_for_the_next() -> None:
    lanes = Lanes(["a"])
    got = []

    def wait() -> None:
        with lanes.one_for("y") as lane:
            got.append(lane)

    waiting = threading.Thread(target=wait)
    with lanes.one_for("x"):
        waiting.start()
        waiting.join(0.05)
        assert not got
    waiting.join(5.0)
    assert got == ["a"]


def test_a_process_that_ended_before_it_was_needed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def spawn(self: Lane, locked: bool) -> object:
        process = lane_module._Process(str(len(made)), Future())
        if len(made) < 2:  # while another process held all of the device's memory, say
            process.end.set_result(
                JobResult("error", output="Traceback (most recent call last):\n  x\nOutOfMemory: none")
            )
        made.append(process)
        return process

    monkeypatch.setattr(Lane, "_spawn", spawn)
    lane = Lane(LaneSettings("0", "0", hardware("H100"), tmp_path, "host", spares=3))
    try:
        lane._fill()
        with caplog.at_level(logging.WARNING):
            assert lane._fresh(locked=True).token == "2"
    finally:
        lane.close()
    assert (
        caplog.messages == ["a process for candidates of GPU 0: it ended before it was needed: OutOfMemory: none"] * 2
    )
    assert len(made) == 6, "each that was taken has its successor"
