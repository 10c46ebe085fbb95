"""Lanes: which GPU takes the next candidate."""

from __future__ import annotations

import threading

from mtmc.evaluate.measure.lanes import Lanes


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
