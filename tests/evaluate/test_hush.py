"""Work that many do at a time, and silence in which none of it is done."""

from __future__ import annotations

import threading
import time

from mtmc.evaluate.measure.hush import Hush


def started(hush: Hush, said: list[str], name: str) -> threading.Thread:
    def work() -> None:
        with hush.work():
            said.append(name)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_silence_waits_for_those_at_work_and_others_wait_for_its_end() -> None:
    hush, said, go = Hush(), list[str](), threading.Event()

    def first() -> None:
        with hush.work():
            said.append("at work")
            go.wait(300.0)
            said.append("done")

    working = threading.Thread(target=first, daemon=True)
    working.start()
    while not said:
        time.sleep(0.001)
    threading.Timer(0.05, go.set).start()
    with hush.silence(), hush.silence():  # of two GPUs
        assert said == ["at work", "done"]
        waiting = started(hush, said, "next")
        waiting.join(0.05)
        assert said[2:] == []
    waiting.join(300.0)
    working.join(300.0)
    assert said[2:] == ["next"]


def test_work_that_takes_too_long_is_not_waited_for() -> None:
    hush = Hush(longest_s=0.01)
    with hush.work(), hush.silence():
        pass
    said = list[str]()
    started(hush, said, "later").join(300.0)
    assert said == ["later"]
