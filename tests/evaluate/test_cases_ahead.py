"""What the next screening asks for is made while nothing is examined: each case for one candidate, none in anybody's way.

That an evaluator does so is in `test_measure`, beside the other tests that share its processes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from evaluate_sources import TASK

from mtmc.evaluate.check.cases import plan
from mtmc.evaluate.measure import cases_ahead
from mtmc.evaluate.measure.cases_ahead import CasesAhead
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.idle_work import IdleWork
from mtmc.evaluate.measure.measurement import screened
from mtmc.evaluate.measure.reference_state import ReferenceState
from mtmc.evaluate.pool.first_come import FirstCome
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs

TODO = plan(TASK, "screen", 2, ("huge",))


def calls(number: int, size: int = 4) -> list[ExpectedOutputs]:
    return [ExpectedOutputs([torch.full((size,), float(number))], [], "", [])]


def test_what_was_made_ahead_is_given_to_one_candidate_only() -> None:
    made = itertools.count()
    ahead = CasesAhead(lambda case, count: calls(next(made)))
    steps = [ahead.prepare(TODO.cases, TODO.calls) for _ in range(len(TODO.cases) + 1)]
    assert steps == [True] * len(TODO.cases) + [False], "each kind once, and then there is nothing to do"
    given = [ahead.take(case, TODO.calls) for case in (*TODO.cases, *TODO.cases)]
    values = [float(each[0].inputs[0][0]) for each in given if each]
    assert values[: len(TODO.cases)] == list(range(len(TODO.cases)))
    assert len(set(values)) == len(values) == 2 * len(TODO.cases), "nobody gets what another one has had"


def test_a_case_is_no_other_one() -> None:
    """Neither one of moved weights, nor one at other shapes, nor one of more calls in a row."""
    ahead = CasesAhead(lambda case, count: calls(-1))
    ahead.prepare(TODO.cases[:1], TODO.calls)
    [first, *others] = TODO.cases
    fresh = CasesAhead(lambda case, count: calls(7))
    fresh._waiting = dict(ahead._waiting)
    for case, count in [*((each, TODO.calls) for each in others), (first, TODO.calls + 1)]:
        assert float(fresh.take(case, count)[0].inputs[0][0]) == 7  # type: ignore[index]
    assert float(fresh.take(first, TODO.calls)[0].inputs[0][0]) == -1  # type: ignore[index]


def test_what_takes_the_place_of_a_refused_case_is_made_ahead_too() -> None:
    refused = next(case for case in TODO.cases if len(case.attempts) > 1)
    asked = []

    def make(case: object, count: int) -> list[ExpectedOutputs] | None:
        asked.append(case)
        return None if len(asked) == 1 else calls(1)

    ahead = CasesAhead(make)
    assert [ahead.prepare([refused], 1) for _ in range(3)] == [True, True, False]
    assert ahead.take(refused.attempts[0], 1) is None and ahead.take(refused.attempts[1], 1) is not None
    assert len(asked) == 2


def test_what_waits_takes_a_part_of_the_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_ahead, "AHEAD_BYTES", 100)
    ahead = CasesAhead(lambda case, count: calls(1, size=20))
    assert [ahead.prepare(TODO.cases, 1) for _ in range(4)] == [True, True, False, False]
    ahead.clear()
    assert ahead.prepare(TODO.cases, 1)


def test_weights_that_are_forgotten_leave_no_case_behind(tmp_path: Path) -> None:
    seeds = itertools.count(5)
    state = ReferenceState(TASK, HostBackend(), tmp_path, lambda: next(seeds))
    todo = screened(TASK, 1)
    while state.prepare(todo):
        pass
    first = state.case(todo.cases[0], todo.calls)
    again = state.case(todo.cases[0], todo.calls)
    assert first and again and not torch.equal(first[0].inputs[0], again[0].inputs[0]), "fresh inputs for each"
    waiting = state._ahead._waiting
    assert waiting
    state.forget()
    assert not waiting, "a verification has weights of its own"


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[tuple[FirstCome, DeviceLock, DeviceLock]]:
    mine, theirs = DeviceLock(tmp_path / "turns"), DeviceLock(tmp_path / "turns")
    yield FirstCome(), mine, theirs
    mine.close()
    theirs.close()


def soon(done: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
    return done()


def test_locks_are_taken_at_once_or_not_at_all(locks: tuple[FirstCome, DeviceLock, DeviceLock]) -> None:
    first, mine, theirs = locks
    for lock, other in ((first, first), (mine, theirs), (mine, mine)):
        with lock.at_once() as one, other.at_once() as two:
            assert one and not two
        with lock, other.at_once() as held:
            assert not held
        with lock.at_once() as free:
            assert free
    with theirs, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: mine.__enter__())
        time.sleep(0.1)
        another = DeviceLock(mine.path)
        with another.at_once() as free:
            assert not free, "who waits goes first"
        another.close()
        theirs.__exit__(None, None, None)
        waiting.result(60)
        threads.submit(lambda: mine.__exit__(None, None, None)).result(60)
        theirs.__enter__()
    mine.close()
    with mine.at_once() as free:
        assert not free


def test_idle_work_waits_for_nobody_and_nobody_for_more_than_a_piece(
    locks: tuple[FirstCome, DeviceLock, DeviceLock],
) -> None:
    first, mine, theirs = locks
    begun, go_on, done = threading.Event(), threading.Event(), []

    def piece() -> bool:
        begun.set()
        go_on.wait(60)
        done.append(1)
        return True

    idle = IdleWork(first, mine, piece)
    with first:
        idle.want()
        time.sleep(0.05)
        assert not begun.is_set(), "the worker is at work"
    with theirs:
        idle.want()
        time.sleep(0.05)
        assert not begun.is_set(), "another evaluator has the device"
        with first.at_once() as free:
            assert free, "and this one's own lock is not held meanwhile"
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(first.acquire)
        time.sleep(0.05)
        go_on.set()
        waiting.result(60)
        count = len(done)
        time.sleep(0.05)
        assert len(done) == count == 1, "whoever came has it now"
    first.release()
    idle.want()
    assert soon(lambda: len(done) > 1)
    idle.close()
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count
    idle.close()
