"""Counters in memory: what a program finds in those that it and others raise, and look at until others have come by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mtmc.evaluate.counting.storages import Storages

if TYPE_CHECKING:
    from mtmc.evaluate.counting.contents import Contents

FEW, LEAPS = 32, 20
"""Looks that see one more each time, and those behind them that see twice as many each time."""


class Counters:
    """Those that the program which runs raises and looks at; the others are not run beside it.

    place: of the program that runs: its index, and how many there are. shares: by storage: how many programs raise one of
    its counters, if not all. common: (storage, place) of counters that all programs raise. raised: by storage: (place,
    program) of its counters.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self.place = (0, 1)
        self.shares: Mapping[int, int] = {}
        self.common: Collection[tuple[int, int]] = ()
        self.raised: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._turns: dict[int, int] = {}  # how often it has raised the counter at an address
        # How often it has looked there without raising it; while it computes: and waited.
        self._asked: dict[int, int] = {}

    def start(self) -> None:
        """Begin a program (or grid)."""
        self._turns.clear()
        self._asked.clear()

    def ticket(self, address: int, size: int, step: int, contents: Contents | None) -> int:
        """What a program finds in a counter that it and others raise, one after another and round after round.

        While it computes, others have come before it only where it is the last of a round, or waits for them by asking
        again and again. contents: what it finds elsewhere, while it computes."""
        index, programs = self.place
        number = self._storages.find(address)
        if number is not None:
            self.raised[number].add((address // size, index))
            if (number, address // size) not in self.common:
                programs = self.shares.get(number, programs)
        if not step:
            return self._poll(address, size, contents)
        turn = self._turns.get(address, 0)
        self._turns[address] = turn + 1
        come = index % programs
        if contents is not None:
            come = (come - contents.earlier) % programs
            contents.waits = contents.waits or come == programs - 1 > 0  # who is alone waits for nobody
        return (come + turn * programs) * step

    def _poll(self, address: int, size: int, contents: Contents | None) -> int:
        """What a program finds in a counter that it does not raise: what has been there, and where it waits for another
        number there that one, whatever it is."""
        import numpy as np

        if contents is None:
            return _come_by(self._looked(address)) + self._turns.get(address, 0)
        if contents.stands() or address in self._asked:
            return _come_by(self._looked(address)) + 1
        found = contents.before(np.full(1, address, np.uint64), size)
        return self._turns.get(address, 0) + (0 if found is None else int(found.view(f"i{size}")[0]))

    def unlike(self, addresses: Any, expected: Any, contents: Contents) -> Any:
        """What lies at a place that is exchanged, where that is known and is not what is expected there, for as long as a
        program does not wait for it; else None: it exchanges, which may lock others out."""
        size = expected.itemsize
        if contents.stands():
            return None
        found = contents.before(addresses, size)
        if found is None or found.dtype.itemsize != size:
            contents.unknown = True
            return None
        if (found.view(expected.dtype) == expected).all():
            contents.locks = True
            return None
        return found.view(expected.dtype)

    def _looked(self, address: int) -> int:
        """How often a program has looked at a place before."""
        turn = self._asked.get(address, 0)
        self._asked[address] = turn + 1
        return turn


def _come_by(looks: int) -> int:
    """How many others have come by when a program looks once more: one each time, but for some looks in between that see
    more and more of them. Who waits for thousands need not look so often, and who waits for one number sees that too."""
    if looks < FEW:
        return looks
    return FEW << (looks - FEW + 1) if looks < FEW + LEAPS else looks - LEAPS


def common_of(raised: Mapping[int, set[tuple[int, int]]]) -> frozenset[tuple[int, int]]:
    """(storage, place) of the counters that all of a sample raise, where they raise others besides, each its own: what
    programs take their numbers by, say. raised: see `shares_of`."""
    found = set()
    for number, pairs in raised.items():
        by: defaultdict[int, set[int]] = defaultdict(set)
        for place, program in pairs:
            by[place].add(program)
        programs = {program for _, program in pairs}
        found |= {
            (number, place) for place, those in by.items() if len(by) > 1 and len(programs) > 1 and those == programs
        }
    return frozenset(found)


def shares_of(raised: Mapping[int, set[tuple[int, int]]], programs: int) -> dict[int, int]:
    """How many programs raise each counter of a storage that not all of them do, as far as a sample of them tells.

    raised: (place, program) of each counter that one of the sample has raised, by storage. programs: how many there are.
    """
    common = common_of(raised)
    places = {
        number: [place for place, _ in pairs if (number, place) not in common] or [0]
        for number, pairs in raised.items()
    }
    return {number: max(1, round(programs / (max(each) - min(each) + 1))) for number, each in places.items()}
