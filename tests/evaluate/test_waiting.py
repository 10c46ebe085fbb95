"""Candidates' processes that have connected: which of them have their contexts, and who is waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mtmc.evaluate.measure import waiting as module
from mtmc.evaluate.measure.candidate_process import TOKEN
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.questions import NO_START
from mtmc.evaluate.measure.waiting import Waiting
from mtmc.evaluate.measure.wire import READY, Enqueued, Line

READY_S = 0.1
LONG_S = 300.0
"""What comes about at all has come about by then, on a busy machine too."""


def comes(happens: Callable[[], bool]) -> bool:
    """Whether something comes about at all."""
    until = time.monotonic() + LONG_S
    while not happens() and time.monotonic() < until:
        time.sleep(0.01)
    return happens()


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Waiting, str]]:
    monkeypatch.setattr(
        module, "end", lambda line, _=0.0: line.close()
    )  # the processes are threads of this one, which must not be killed
    path = str(tmp_path / "oracle")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        yield Waiting(listener, os.memfd_create("flags")), path


def process(path: str, token: str, says: object, late: Callable[[], object] = lambda: None) -> threading.Thread:
    """One that connects, does what it is late for, and says something, or hangs up where that is None."""

    def run() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(token.encode())
            late()
            if says is not None:
                Line(connection).say(says)  # type: ignore[arg-type]
                connection.recv(1 << 16)
                time.sleep(1.0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def token(letter: str) -> str:
    return letter * TOKEN


def test_others_have_their_contexts_before_one_is_examined(waiting: tuple[Waiting, str]) -> None:
    processes, path = waiting
    order: list[str] = []

    def late() -> None:
        time.sleep(READY_S)  # the other one has said that it is ready, and whoever waits for no more has come back
        order.append("has its context")

    process(path, token("a"), READY)
    process(path, token("b"), READY, late)
    processes.settle([token("b"), token("a")], LONG_S)
    order.append("settled")
    assert order == ["has its context", "settled"]
    assert processes._ready == {token("a"), token("b")}
    assert isinstance(processes.line_to(token("a")), Line)
    assert token("a") not in processes and token("b") in processes


CONNECTS = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(sys.argv[2].encode())
while True:
    pass
"""


def test_who_gets_ready_stands_still_while_it_is_to(waiting: tuple[Waiting, str]) -> None:
    processes, path = waiting
    child = subprocess.Popen([sys.executable, "-c", CONNECTS, path, token("a")])

    def state() -> str:
        return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]

    try:
        assert select.select([processes._listener], [], [], LONG_S)[0]
        with pytest.raises(ZeroDivisionError), processes.still():
            assert comes(lambda: state() == "T")
            raise ZeroDivisionError
        assert comes(lambda: state() in "RS") and child.poll() is None
        child.kill()
        child.wait()
        with processes.still():  # it is gone: nobody is stopped
            pass
    finally:
        child.kill()
        child.wait()


def test_what_who_gets_ready_has_started_stands_still_too(waiting: tuple[Waiting, str]) -> None:
    processes, path = waiting
    starts = f"import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n{CONNECTS}"
    command = [sys.executable, "-c", starts, path, token("a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            compiler = psutil.Process(int(child.stdout.readline()))
            assert select.select([processes._listener], [], [], LONG_S)[0]
            with processes.still():
                assert comes(lambda: compiler.status() == psutil.STATUS_STOPPED)
            assert comes(lambda: compiler.status() != psutil.STATUS_STOPPED)
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def test_who_does_not_come_or_dies_is_left_to_whoever_asks_for_it(waiting: tuple[Waiting, str]) -> None:
    processes, path = waiting
    process(path, token("a"), None).join()
    process(path, token("b"), READY)
    processes.settle([token("a"), token("b")], LONG_S)
    processes.settle([token("b"), token("c")], 0.05)
    assert processes._ready == {token("b")}
    with pytest.raises(Failed) as caught:
        processes.line_to(token("a"))
    assert caught.value.diagnosis.kind == NO_START and token("a") not in processes


def test_a_process_that_speaks_before_it_is_asked_is_none(waiting: tuple[Waiting, str]) -> None:
    processes, path = waiting
    process(path, token("a"), Enqueued(1))
    with pytest.raises(Failed) as caught:
        processes.line_to(token("a"))
    assert caught.value.diagnosis.kind == NO_START
