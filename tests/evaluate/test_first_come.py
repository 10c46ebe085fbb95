"""Whoever waits longest is served first: slots of the builds, GPU workers, evaluators of a cluster, turns on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.errors import EvaluatorError
from mtmc.evaluate.measure.device_lock import DeviceLock, shared_folder
from mtmc.evaluate.measure.gpu_workers import GpuWorkers
from mtmc.evaluate.measure.worker_settings import GpuWorkerSettings, pool_settings
from mtmc.evaluate.pool.first_come import FirstCome
from mtmc.evaluate.ray_slots import Slots
from mtmc.hardware import HARDWARE

Take = Callable[[], AbstractContextManager[object]]


def _cluster_slots() -> Take:
    """`Slots` with one evaluator, without the cluster: only who is served when."""
    slots = object.__new__(Slots)
    slots.__dict__.update(
        _changed=threading.Condition(), _free=deque(["slot"]), _line=deque(),
        _failed=None, _closed=False, _greeted={}, _all=["slot"], _wait_s=300.0,
    )  # fmt: skip

    @contextmanager
    def take() -> Iterator[object]:
        slot = slots._take()
        try:
            yield slot
        finally:
            slots._put(slot)

    return take


def _gpu_workers() -> Take:
    workers = GpuWorkers(["a"])
    return lambda: workers.one_for("task")


def _first_come() -> Take:
    places = FirstCome()
    return lambda: places


KINDS = {"first come": _first_come, "GPU workers": _gpu_workers, "cluster": _cluster_slots}


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_works_in_a_loop_keeps_nobody_out(kind: str) -> None:
    take, stop, turns = KINDS[kind](), threading.Event(), list[str]()

    def loop(name: str) -> None:
        while not stop.is_set():
            with take():
                turns.append(name)
                time.sleep(0.002)

    workers = [threading.Thread(target=loop, args=(name,)) for name in "abc"]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + 300.0
    while len(turns) < 60 and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    for worker in workers:
        worker.join(300.0)
    assert {name: turns[6:60].count(name) >= 12 for name in "abc"} == {"a": True, "b": True, "c": True}, turns


@pytest.mark.parametrize("kind", KINDS)
def test_the_line_is_kept(kind: str) -> None:
    take, served = KINDS[kind](), list[int]()

    def wait(number: int) -> None:
        with take():
            served.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(6)]
    with take():
        for each in waiting:
            each.start()
            time.sleep(0.05)  # in this order
    for each in waiting:
        each.join(300.0)
    assert served == list(range(6))


def test_as_many_as_there_are_places_have_one() -> None:
    places, inside, most = FirstCome(2), 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with places:
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with guard:
                    inside -= 1

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300.0)
    assert (inside, most) == (0, 2)
    places.acquire()
    places.acquire()  # both are free again


def test_who_is_interrupted_while_it_waits_leaves_the_line(tmp_path: Path) -> None:
    script = """
import signal, threading
from mtmc.evaluate.pool.first_come import FirstCome
places, said = FirstCome(), []
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
places.acquire()
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    places.acquire()
except KeyboardInterrupt:
    said.append("interrupted")
places.release()
with places:
    said.append("free again")
print(said)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout == "['interrupted', 'free again']\n", done.stderr


def test_a_worker_that_is_wanted_holds_up_nobody_who_takes_any() -> None:
    workers, served = GpuWorkers(["a", "b"]), list[str]()

    def wait(wanted: str | None) -> None:
        with workers.one_for("task", wanted) as worker:
            served.append(worker)

    with workers.one_for("x", "a"):
        first = threading.Thread(target=wait, args=("a",))
        first.start()
        time.sleep(0.05)
        second = threading.Thread(target=wait, args=(None,))
        second.start()
        second.join(300.0)
        assert served == ["b"], "who came first waits for another worker"
    first.join(300.0)
    assert served == ["b", "a"]


LOOP = """
import os, sys, time
from pathlib import Path
from mtmc.evaluate.measure.device_lock import DeviceLock, shared_folder
folder = Path(sys.argv[1])
lock, turns = DeviceLock(folder / "turns"), os.open(folder / "taken", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
print("ready", flush=True)
while True:
    with lock:
        os.write(turns, b".")
        time.sleep(0.01)
"""


@contextmanager
def looping(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that does nothing but take turns."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_works_in_a_loop_leaves_turns_to_others(tmp_path: Path) -> None:
    lock, taken = DeviceLock(tmp_path / "turns"), tmp_path / "taken"
    with looping(tmp_path), looping(tmp_path):
        before = taken.stat().st_size
        for _ in range(20):
            with lock:
                theirs = taken.stat().st_size - before
    lock.close()
    assert theirs < 20 * 10, "about two for each of mine; without a line more than a hundred"


@pytest.mark.parametrize("others", [1, 2])
def test_a_lock_that_is_closed_while_it_is_waited_for_says_so(others: int, tmp_path: Path) -> None:
    """others: one has the lock; with two, the second is next in line."""
    first, second, mine = (DeviceLock(tmp_path / "turns") for _ in range(3))
    with ThreadPoolExecutor(2) as threads:
        with first:
            if others == 2:
                next_one = threads.submit(lambda: second.__enter__())
                time.sleep(0.1)
            waiting = threads.submit(lambda: mine.__enter__())
            time.sleep(0.1)
            mine.close()
        if others == 2:
            next_one.result(60)
            second.close()
        with pytest.raises(EvaluatorError, match="closed"):
            waiting.result(60)
    with first:  # nobody has it
        pass
    first.close()


def test_who_is_killed_while_it_waits_is_not_waited_for(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path / "turns")
    with lock:
        with looping(tmp_path):
            time.sleep(0.1)  # it is next in line now
        assert not (tmp_path / "taken").stat().st_size
    with lock:
        pass
    lock.close()


def test_evaluators_of_one_user_take_turns_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = (GpuWorkerSettings("0", "GPU-a", HARDWARE["H100"], tmp_path / name) for name in "ab")
    assert one.turns == other.turns and one.turns.stat().st_mode & 0o777 == 0o700
    assert one.turns in pool_settings(one, tmp_path, locked=False).writable
    assert one.turns not in pool_settings(one, tmp_path, locked=True).writable
    assert replace(one, backend="host").turns == tmp_path / "a"


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"mtmc-turns-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(EvaluatorError, match="set TMPDIR"):
        shared_folder()
