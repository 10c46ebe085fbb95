"""Threads that run at full speed: which are chosen, and which rounds count."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from mtmc.evaluate.measure.call_time import Moments, Rounds
from mtmc.evaluate.measure.fast_threads import FastThreads

OTHER = os.getpid() + 1
FAST, SLOW = 1.0, 2.0


class Machine:
    """speeds: seconds of the loop on each thread. where: on which threads each process is; 0 is the one that looks."""

    def __init__(self, speeds: dict[int, float]) -> None:
        self.speeds = speeds
        self.where: dict[int, set[int]] = {0: set(speeds), OTHER: set(speeds)}
        self.looks = 0

    def pin(self, process: int, threads: set[int]) -> None:
        self.where[process] = set(threads)

    def loop(self) -> float:
        self.looks += 1
        [thread] = self.where[0]
        return self.speeds[thread]

    def threads(self, own: int = 4) -> FastThreads:
        numbers = sorted(self.speeds)
        return FastThreads(numbers[:own], numbers[own:], self.pin, self.loop)


@pytest.fixture
def machine() -> Machine:
    return Machine({0: SLOW, 1: SLOW, 2: FAST, 3: SLOW, 4: SLOW, 5: FAST, 6: FAST, 7: SLOW})


def test_the_oracle_goes_to_a_fast_thread_and_stays_there_while_it_is_fast(machine: Machine) -> None:
    threads = machine.threads()
    assert threads.settle() and machine.where[0] == {2}
    machine.looks = 0
    assert threads.settle() and machine.where[0] == {2} and machine.looks == 1
    machine.speeds |= {2: SLOW, 3: FAST}
    assert not threads.fast_here()
    assert threads.settle() and machine.where[0] == {3} and threads.fast_here()


def test_where_versions_are_built_it_goes_only_while_nothing_is(machine: Machine) -> None:
    machine.speeds[2] = SLOW
    threads = machine.threads()
    assert not threads.settle() and machine.where[0] <= {0, 1, 2, 3}
    assert threads.settle(anywhere=True) and machine.where[0] == {5}
    assert not threads.settle() and machine.where[0] <= {0, 1, 2, 3}


def test_a_candidate_has_another_fast_thread_and_in_the_end_those_of_its_gpu(machine: Machine) -> None:
    threads = machine.threads()
    threads.settle()
    with threads.lending(OTHER) as lend:
        still_fast = lend()
        assert (machine.where[0], machine.where[OTHER]) == ({2}, {5}) and still_fast()
        assert (machine.where[0], machine.where[OTHER]) == ({2}, {5})
        machine.speeds[5] = SLOW
        assert not still_fast()
        still_fast = lend()
        assert machine.where[OTHER] == {6} and still_fast()
        machine.speeds |= dict.fromkeys(machine.speeds, SLOW)
        still_fast = lend()
        assert not still_fast() and machine.where[OTHER] != machine.where[0] == {2}
        machine.speeds |= dict.fromkeys(machine.speeds, FAST)
        assert not still_fast(), "it was slow when the round began"
    assert (machine.where[0], machine.where[OTHER]) == ({2}, {0, 1, 2, 3})


def test_what_is_fast_is_learned_from_all_threads_before_one_is_chosen() -> None:
    machine = Machine({0: SLOW, 1: SLOW, 2: SLOW, 3: SLOW, 4: FAST})
    assert not machine.threads().settle()


def test_the_oracle_is_never_taken_for_a_candidate(machine: Machine) -> None:
    threads = machine.threads()
    threads.settle()
    for process in (0, os.getpid()):
        with threads.lending(process) as lend:
            assert lend()()
        assert machine.where[0] == {2} and os.getpid() not in machine.where


def test_with_few_threads_none_is_looked_for(machine: Machine) -> None:
    threads = machine.threads(own=2)
    assert threads.settle() and threads.fast_here()
    with threads.lending(OTHER) as lend:
        assert lend()()
    assert machine.looks == 0 and machine.where[0] == machine.where[OTHER] == set(machine.speeds)


def test_a_process_that_has_ended_is_no_error(machine: Machine) -> None:
    threads = machine.threads()
    threads.settle()
    pin = machine.pin

    def gone(process: int, to: set[int]) -> None:
        if process == OTHER:
            raise ProcessLookupError(process)
        pin(process, to)

    threads._pin = gone
    with threads.lending(OTHER) as lend:
        assert lend()()


def _rounds(found: list[tuple[float, bool]]) -> Rounds:
    rounds = Rounds(4)
    for host, fast in found:
        rounds.add(Moments(0.0, 1.0, 4 * host, 1.0 + 4 * host), fast)
    rounds.end()
    return rounds


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        ([(2.0, False), (1.0, True), (2.1, False), (1.01, True)], [1.0, 1.01]),
        ([(1.0, True)], [1.0]),
        ([(2.0, False), (1.0, True)], [1.0]),
        ([(2.0, False), (1.9, False)], [2.0, 1.9]),
    ],
)
def test_rounds_on_slow_threads_count_where_there_are_no_others(
    found: list[tuple[float, bool]], counted: list[float]
) -> None:
    rounds = _rounds(found)
    assert rounds.hosts == pytest.approx(counted) and len(rounds.seen) == len(counted)


def test_all_calls_of_a_round_are_compared_where_it_is_the_fastest_so_far_on_whatever_thread() -> None:
    rounds = Rounds(4)
    faster: Callable[[float, bool], bool] = lambda host, fast: rounds.add(  # noqa: E731
        Moments(0.0, 1.0, 4 * host, 9.0), fast
    )
    asked: Iterator[tuple[float, bool]] = iter([(2.0, False), (1.9, True), (1.5, False), (1.49, True), (1.8, True)])
    assert [faster(*each) for each in asked] == [True, True, True, False, False]
