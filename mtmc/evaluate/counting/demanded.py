"""What one launch of a forward leaves for the next, where launches are not run: computed when a spot check asks for it.

A program that is run with data may load what an earlier launch has written. The programs of that launch that wrote these
elements are run then, with what they load found in the same way. Which they are is guessed: the first address that a
program writes is a sum over its place in the grid (also where one number of the grid stands for rows and columns of
tiles, or groups of them), and relative to it all write alike. A wrong guess is noticed, for the element is not there then,
and what is not found, or would take too long, stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtmc.evaluate.counting.added import Added, Atomics
from mtmc.evaluate.counting.computed import Computed
from mtmc.evaluate.counting.contents import Array, Content, Contents, Poison
from mtmc.evaluate.counting.cuda_graph import unfolded
from mtmc.evaluate.counting.launches import Launches, Sampled
from mtmc.evaluate.counting.producer import Producer

DEPTH = 20
"""Launches in a row that are looked behind."""
MOST_BYTES = 256 << 20


class Writers:
    """The launches of a forward as those that can be asked for what they have written.

    budget: interpreter microseconds. log: the forward's records in order, behind those of an earlier call that it goes on
    from. first: the place of its own first one.
    """

    def __init__(self, launches: Launches, known: Mapping[int, Content], budget: float) -> None:
        self.launches, self.budget = launches, budget
        self.log = [*launches.before, *unfolded(launches.log)]
        self.first = len(launches.before)
        self._places = {id(record): place for place, record in enumerate(self.log)}
        self._known = known
        self._held: dict[tuple[int, tuple[int, ...]], Demanded] = {}  # by storage and the places of its writers
        self._computed: dict[tuple[int, int], Computed] = {}
        self._sums: dict[tuple[int, tuple[int, ...]], Added] = {}
        self._depth = 0
        self.exhausted = self.unsummed = False

    def grant(self, work: float) -> None:
        """Let the next launch ask for so much more, in interpreter microseconds."""
        self.budget, self.exhausted = max(0.0, self.budget) + work, False

    def place(self, sampled: Sampled) -> int | None:
        """Where in the log a launch stands; None for one that is not of this call (it was captured before, say)."""
        return self._places.get(id(sampled.record))

    def before(self, at: int) -> Contents:
        """What is known of storages where the launch of a record begins, also of those that it writes itself; after the
        last record where `at` is none."""
        log = self.log
        known: dict[int, Content] = dict(self._known)
        for number in {n for record in log[:at] for n, _ in record["writes"]}:
            writers = [place for place, record in enumerate(log[:at]) if number in _written(record)]
            last = log[writers[-1]]
            if is_filling(last):
                if isinstance(known.get(number), Poison):
                    del known[number]  # a part of it
            elif id(last) in self.launches.storages.calls:
                key = number, writers[-1]
                known[number] = self._computed.setdefault(key, Computed(self, *key))
            elif self._alone(number, writers):
                known[number] = self._demanded(number, writers)
            elif self._is_sum(number, writers):
                known[number] = self._sum(number, writers)
            else:
                known.pop(number, None)
        written = _written(log[at]) if at < len(log) else set()
        own = {number: self._demanded(number, [at]) for number in written if self._alone(number, [at])}
        missing = written - own.keys()
        return Contents(self.launches.storages, known, own | dict.fromkeys(missing, Unknown()))

    def _alone(self, number: int, writers: Sequence[int]) -> bool:
        """Whether launches of one kernel write a storage, each another part, and nothing else but a filling before."""
        records = [self.log[place] for place in writers]
        names = {record.get("kernel") for record in records if not is_filling(record)}
        return (
            len(names) == 1
            and None not in names
            and not any(is_raised(each, number) for each in self.launches.sampled if self.place(each) in writers)
            and self.launches.storages.sizes[number] <= MOST_BYTES
        )

    def _is_sum(self, number: int, writers: Sequence[int]) -> bool:
        """Whether an op of torch makes a storage, and then launches alone add to it by atomics."""
        first = self.log[writers[0]]
        raising = [each for each in self.launches.sampled if self.place(each) in writers[1:]]
        return (
            (is_filling(first) or id(first) in self.launches.storages.calls)
            and len(raising) == len(writers) - 1 > 0
            and all(is_raised(each, number) for each in raising)
            and self.launches.storages.sizes[number] <= MOST_BYTES
        )

    def _sum(self, number: int, writers: Sequence[int]) -> Added:
        key = number, tuple(writers)
        if key not in self._sums:
            raising = [each for each in self.launches.sampled if self.place(each) in writers[1:]]
            producers = [Producer(each, number, self.launches) for each in raising]
            self._sums[key] = Added(self, number, writers[0], producers)
        return self._sums[key]

    def begun(self, number: int, place: int) -> Content | None:
        """What a storage holds before anything is added: what an op of torch has made. place: of the op."""
        if is_filling(self.log[place]):
            return self._known.get(number)
        return self._computed.setdefault((number, place), Computed(self, number, place))

    def atomics(self, sampled: Sampled, index: int) -> Atomics | None:
        """What a program does by atomics; None where it loads what is not known, or there is no work left to run it
        (`unsummed`)."""
        place = self.place(sampled)
        if self._depth >= DEPTH or self.budget <= 0:
            self.unsummed = True
            return None
        if place is None:
            return None
        contents = self.before(place)
        self._depth += 1
        try:
            self.budget -= self.launches.computed(sampled.program, index, contents).work
        finally:
            self._depth -= 1
        return None if contents.missed else self.launches.meter.left.added

    def _demanded(self, number: int, writers: Sequence[int]) -> Demanded:
        key = (number, tuple(writers))
        if key not in self._held:
            sampled = [each for each in reversed(self.launches.sampled) if self.place(each) in writers]
            self._held[key] = Demanded(self, number, [Producer(each, number, self.launches) for each in sampled])
        return self._held[key]

    def run(self, sampled: Sampled, index: int) -> bool:
        """Run a program of a launch whose stores are asked for. Returns: whether all that it loads is known."""
        place = self.place(sampled)
        if self._depth >= DEPTH or self.budget <= 0:
            self.exhausted = True
            return False
        if place is None:
            return False
        contents = self.before(place)
        self._depth += 1
        try:
            tally = self.launches.computed(sampled.program, index, contents)
        finally:
            self._depth -= 1
        self.budget -= tally.work
        return not contents.unknown


class Demanded:
    """A storage that earlier launches write: what of it has been computed. See `Content`."""

    def __init__(self, writers: Writers, number: int, producers: Sequence[Producer]) -> None:
        self._writers, self._number, self._producers = writers, number, producers
        self._values: Array | None = None
        self._there: Array | None = None

    def read(self, elements: Array) -> Array | None:
        """See `Content`."""
        launches = self._writers.launches
        missing = self._missing(elements)
        while missing.size:
            first = int(missing.min())
            if not any(self._produced(producer, first, launches) for producer in self._producers):
                return None
            missing = self._missing(missing)
        return None if self._values is None else self._values[elements]

    def _missing(self, elements: Array) -> Array:
        """Those of some elements that are not there."""
        return elements if self._there is None else elements[~self._there[elements]]

    def _produced(self, producer: Producer, element: int, launches: Launches) -> bool:
        """Whether an element is there after a producer's likely programs have run."""
        for index in producer.likely(element):
            producer.under_way.add(index)
            known = self._writers.run(producer.sampled, index)
            producer.under_way.discard(index)
            if not known:
                return False
            offsets = [self._take(addresses, values) for addresses, values, _ in launches.meter.left.written]
            producer.learn(index, [found for found in offsets if found is not None])
            if self._there is not None and self._there[element]:
                return True
        return False

    def _take(self, addresses: Array, values: Array) -> Array | None:
        """Keep what was stored here. Returns: the elements."""
        storages = self._writers.launches.storages
        if not addresses.size or storages.find(int(addresses.min())) != self._number:
            return None
        if self._values is None:
            count = storages.sizes[self._number] // values.itemsize
            self._values, self._there = np.zeros(count, values.dtype), np.zeros(count, bool)
            for producer in self._producers:
                producer.element = int(values.itemsize)
        elements = storages.offset(self._number, addresses.astype(np.int64)) // values.itemsize
        if self._there is None or values.dtype != self._values.dtype or int(elements.max()) >= self._values.size:
            return None
        self._values[elements], self._there[elements] = values, True
        return np.asarray(elements)


class Unknown:
    """A storage of which nothing is known. See `Content`."""

    def read(self, elements: Array) -> None:
        """See `Content`."""
        return None


def is_raised(sampled: Sampled, number: int) -> bool:
    """Whether a launch changes a storage by atomics, as far as its sample tells."""
    return any(number in tally.uses and tally.uses[number].atomic for tally in sampled.tallies.values())


def is_filling(record: Mapping[str, Any]) -> bool:
    """Whether an op fills a storage with one number."""
    return str(record.get("op")).rpartition(".")[2] in FILLED


FILLED = {"zeros": 0, "zero_": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}
"""Ops that fill a new storage with one number."""


def _written(record: Mapping[str, Any]) -> set[int]:
    return {number for number, _ in record["writes"]}
