"""What works beside the evaluator stands still, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from mtmc.evaluate.measure.stillness import Stillness


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def stopped(pid: int) -> None:
    """Wait until a child has stopped."""
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def continued(pid: int) -> None:
    """Wait until a child goes on."""
    assert os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1])


def test_builds_and_processes_stand_still_until_no_gpu_wants_it(sleeper: int) -> None:
    said: list[bool] = []
    stillness = Stillness(said.append)
    stillness.add(lambda: [sleeper])
    stillness.want(True)
    stopped(sleeper)
    stillness.want(True)
    stillness.want(False)
    assert said == [True] and os.waitpid(sleeper, os.WCONTINUED | os.WNOHANG) == (0, 0)
    stillness.want(False)
    continued(sleeper)
    assert said == [True, False]


def test_those_that_were_stopped_go_on_though_they_are_told_of_no_more(sleeper: int) -> None:
    stillness, named = Stillness(lambda on: None), [sleeper]
    stillness.add(lambda: named)
    stillness.want(True)
    stopped(sleeper)
    named.clear()
    stillness.want(False)
    continued(sleeper)


def test_a_process_that_is_gone_or_another_users_is_left_out(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    kill = os.kill

    def refused(pid: int, number: int) -> None:
        if pid == os.getppid():
            raise PermissionError(pid)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", refused)
    stillness = Stillness(lambda on: None)
    stillness.add(lambda: [gone.pid, os.getppid(), sleeper])
    stillness.want(True)
    stopped(sleeper)
    stillness.want(False)
    continued(sleeper)
    kill(sleeper, signal.SIGTERM)
