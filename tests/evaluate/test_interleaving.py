"""Programs side by side: each runs once, none waits for ever, and what leans on their order is seen."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from mtmc.evaluate.interpreter.interleaving import Interleaving

Index = tuple[int, int, int]


class Launch:
    """Programs that read and write cells; each access may give way first, as an interpreted one does."""

    def __init__(
        self, body: Callable[[Launch, int], None], programs: int, seed: int, backwards: bool = False, room: int = 0
    ) -> None:
        self.index: Index = (-1, -1, -1)
        self.cells = [0] * (programs + 1 + room)
        self.ran: list[int] = []
        self._side_by_side = Interleaving(lambda: self._program(body), random.Random(seed), self._place, backwards)
        self._side_by_side.run([(x, 0, 0) for x in range(programs)])

    def _place(self, index: Index) -> None:
        self.index = index

    def _program(self, body: Callable[[Launch, int], None]) -> None:
        self.ran.append(self.index[0])
        body(self, self.index[0])

    def load(self, at: int) -> int:
        self._side_by_side.give_way((at, at))
        return self.cells[at]

    def store(self, at: int, value: int) -> None:
        self._side_by_side.give_way((at, at))
        self.cells[at] = value
        self._side_by_side.changed((at, at))

    def add(self, at: int, value: int) -> int:
        """Atomically."""
        self._side_by_side.give_way((at, at))
        self.cells[at] += value
        if value:
            self._side_by_side.changed((at, at))
        return self.cells[at] - value


def adds_plainly(launch: Launch, program: int) -> None:
    launch.store(0, launch.load(0) + 1)


def adds_atomically(launch: Launch, program: int) -> None:
    launch.add(0, 1)


def takes_the_one_before(launch: Launch, program: int) -> None:
    launch.store(program + 1, launch.load(program) + 1)


def waits_for_the_one_before(launch: Launch, program: int) -> None:
    while program and launch.load(program) == 0:
        pass
    launch.store(program + 1, launch.load(program) + 1)


def waits_for_all(launch: Launch, program: int) -> None:
    launch.add(0, 1)
    while launch.add(0, 0) < len(launch.cells) - 1:
        pass
    launch.store(program + 1, 1)


def test_each_runs_once_in_another_order_each_time() -> None:
    orders = [Launch(adds_atomically, 40, seed).ran for seed in range(3)]
    assert all(sorted(order) == [*range(40)] for order in orders)
    assert len({tuple(order) for order in [*orders, [*range(40)]]}) == 4


@pytest.mark.parametrize(("body", "at"), [(adds_plainly, 0), (takes_the_one_before, -1)])
def test_what_leans_on_the_order_is_seen(body: Callable[[Launch, int], None], at: int) -> None:
    assert sum(Launch(body, 4, seed).cells[at] != 4 for seed in range(20)) > 8


@pytest.mark.parametrize(
    ("body", "cells"),
    [(adds_atomically, [24, *[0] * 24]), (waits_for_the_one_before, [*range(25)]), (waits_for_all, [24, *[1] * 24])],
)
def test_what_waits_as_it_must_is_right(body: Callable[[Launch, int], None], cells: list[int]) -> None:
    assert all(Launch(body, 24, seed).cells == cells for seed in range(3))


def test_the_first_failure_ends_all() -> None:
    def fails(launch: Launch, program: int) -> None:
        while launch.load(0) == 0:
            if program == 7:
                raise ZeroDivisionError("of program 7")

    before = set(threading.enumerate())  # those of other tests stay
    with pytest.raises(ZeroDivisionError, match="of program 7"):
        Launch(fails, 30, 1)
    begun = [thread for thread in threading.enumerate() if thread not in before]
    for thread in begun:
        thread.join(300)
    assert not [thread for thread in begun if thread.is_alive()]


def the_last_adds_up(launch: Launch, program: int) -> None:
    launch.store(program + 1, 1)
    if program + 2 == len(launch.cells):
        launch.store(0, sum(launch.load(at) for at in range(1, program + 2)))


@pytest.mark.parametrize("programs", [2, 4, 50])
def test_every_other_launch_begins_with_the_last_program(programs: int) -> None:
    """Of four programs the last is the last to end in one launch of four or so, whatever their order is drawn to be."""
    drawn = [Launch(the_last_adds_up, programs, seed).cells[0] for seed in range(40)]
    assert programs not in {Launch(the_last_adds_up, programs, seed, backwards=True).cells[0] for seed in range(40)}
    assert programs > 4 or programs in drawn


def test_one_that_waits_is_not_waited_for_for_ever() -> None:
    launch = Launch(waits_for_the_one_before, 40, 1, backwards=True)
    assert sorted(launch.ran) == list(range(40))
    assert Launch(adds_atomically, 40, 1, backwards=True).cells[0] == 40


@pytest.mark.parametrize("backwards", [True, False])
@pytest.mark.parametrize("programs", [8, 200])
@pytest.mark.parametrize("body", [waits_for_the_one_before, waits_for_all])
def test_what_waits_comes_to_its_end(body: Callable[[Launch, int], None], programs: int, backwards: bool) -> None:
    """On a GPU those that wait for all others must have room beside each other: here there is room for 128."""
    if body is waits_for_all and programs > 128:
        programs = 128
    launch = Launch(body, programs, 1, backwards)
    ends = [*range(programs + 1)] if body is waits_for_the_one_before else [programs, *[1] * programs]
    assert launch.cells == ends and sorted(launch.ran) == list(range(programs))


def dawdles(launch: Launch, program: int) -> None:
    """In a variable it counts how often it has looked."""
    spins = 0
    while spins < 300 and launch.load(0) == 0:
        spins += 1


def dawdles_in_memory(launch: Launch, program: int) -> None:
    while launch.add(-1, 1) % 300 != 299:
        launch.load(0)


def dawdles_after_a_wait(launch: Launch, program: int) -> None:
    """It waits for one program, as it should, and then dawdles where it should wait for the others."""
    while program and launch.load(1) == 0:
        pass
    dawdles(launch, program)


def does_not_dawdle(launch: Launch, program: int) -> None:
    pass


DAWDLING = (dawdles, dawdles_in_memory, dawdles_after_a_wait, does_not_dawdle)


@pytest.mark.parametrize("dawdle", DAWDLING, ids=lambda each: each.__name__)
@pytest.mark.parametrize("who", ["the first", "the last", "one in the middle"])
def test_one_that_dawdles_before_it_adds_up_is_seen(dawdle: Callable[[Launch, int], None], who: str) -> None:
    programs = 6
    adds = {"the first": 0, "the last": programs - 1, "one in the middle": 3}[who]

    def body(launch: Launch, program: int) -> None:
        launch.store(program + 1, 1)
        if program == adds:
            dawdle(launch, program)
            launch.store(0, sum([launch.load(at) for at in range(1, programs + 1)]))

    def wrong(backwards: bool) -> int:
        return sum(Launch(body, programs, seed, backwards, room=1).cells[0] != programs for seed in range(20))

    counts = wrong(False), wrong(True)
    assert counts[0] >= (1 if dawdle is dawdles_after_a_wait else 4), counts
    assert adds == 0 or dawdle is dawdles_after_a_wait or counts[1] == 20, counts
