"""Spot checks: secretly chosen programs of each launch, run again at the full shapes with data.

A count without data can be wrong: what a program does may hang on what it loads, or on whether it is one of the sample. So
some programs more, drawn in secret once all launches are known, compute for real. What they do is held against what the
sample says; where it is more, the launch is counted anew, from programs that were drawn in secret and compute. And what
they write into the forward's outputs is held against the reference (`mtmc.evaluate.counting.compared`), as far as all that
they load is known (`mtmc.evaluate.counting.contents`).
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtmc.evaluate.counting.axes import Tiled, Tiling
from mtmc.evaluate.counting.compared import Changed, Found, Spot
from mtmc.evaluate.counting.contents import (
    Array,
    Content,
    Contents,
    Drawn,
    Filled,
    Poison,
    Repeated,
    Whole,
    as_array,
    repeated,
)
from mtmc.evaluate.counting.cuda_graph import unfolded
from mtmc.evaluate.counting.demanded import FILLED, Writers, is_raised
from mtmc.evaluate.counting.few_writers import few_that_write
from mtmc.evaluate.counting.launches import Launches, Sampled
from mtmc.evaluate.counting.storages import flat
from mtmc.evaluate.counting.tally import Record, Tally
from mtmc.evaluate.interpreter.interpreter import bf16_to_f32

FEWEST, MOST, WORK = 2, 6, 0.04e6
"""Programs of a launch that are run again, and the interpreter microseconds beyond which no more than the fewest are."""
THOROUGH = 24, 0.6e6
"""The last two of launches that write outputs, in a verification: where one program in six is wrong, all of so few are right
too often."""
ADDED = 3
"""Elements of an output that atomics write."""
ELEMENT = 4
"""Bytes that an atomic changes."""
MIXED = 0.5
"""Share of an output that others may change besides a launch, whose own part is compared all the same."""
KEPT, LARGEST = 256, 16
"""Elements of each that are compared, one in so many of which are the largest."""
MORE = 1.15
"""Times the work of their neighbours in the sample that secretly chosen programs may have."""
ANEW = 24
KEPT_BACK = 0.5
"""Of the work for earlier launches, the share that is kept for launches that write outputs, as much for each and for the
ops that do: none may be left with nothing because others come first."""
GUESSES, SAME = (1.0, -3.0, 1e3), 1e-3
"""What numbers that nobody knows are taken for, and how near to each other results are then that do not hang on them."""


Place = tuple[int, Repeated]
"""Number of an output, and how it repeats the small draw's."""


class Spots:
    """Spot checks of one forward.

    secret: draws programs and orders of rows. tiling: of the task, None where it has none. small: its inputs, real; without
        a tiling those of any small shapes, and integers of the full ones where they are there.
    budget: interpreter microseconds for the programs of earlier launches that others wait for. thorough: whether many
        programs are compared.
    """

    def __init__(
        self, secret: int, tiling: Tiling | None, small: Sequence[Any], budget: float, thorough: bool = False
    ) -> None:
        self._random = random.Random(secret)
        self._tiling, self._small, self._budget, self._thorough = tiling, small, budget, thorough
        self._recounts = tiling is None or tiling.distribution == "drawn"
        self._salt = self._random.randrange(1 << 20)
        generator = np.random.default_rng(secret)
        sizes = tiling.sizes if tiling is not None else ()
        self._orders = [generator.integers(few, size=full) for full, few in sizes]

    @property
    def compares(self) -> bool:
        """Whether what is written can be compared."""
        return self._tiling is not None

    def look(self, launches: Launches, inputs: Sequence[Any], outputs: Sequence[Any]) -> Found:
        """Run the checks, and count anew in the launches' log what was counted wrong.

        inputs, outputs: tensors of the forward, fake or not. Raises: UncountableError.
        """
        written: list[Spot] = []
        changed: list[Changed] = []
        compared = unknown = 0
        exhausted: list[str] = []
        writers = Writers(launches, self._known(launches, inputs), (1 - KEPT_BACK) * self._budget)
        with launches.meter.installed():
            looked_at = self._looked_at(launches, writers, outputs)
            writing = sum(bool(places) for _, _, places, _ in looked_at)
            for sampled, place, places, share in looked_at:
                contents = writers.before(place)
                writers.grant(KEPT_BACK * self._budget / writing if places else 0.0)
                most, limit = THOROUGH if self._thorough and places else (MOST, WORK)
                tallies: dict[int, Tally] = {}
                own: list[Spot] = []
                before, starved = compared - unknown, False
                few = few_that_write(sampled, places)
                few = self._random.sample(few, min(FEWEST, len(few)))
                for at, index in enumerate(dict.fromkeys([*few, *self._chosen(sampled, most)])):
                    if at >= len(few) + FEWEST and sum(tally.work for tally in tallies.values()) > limit:
                        break
                    tallies[index] = launches.computed(sampled.program, index, contents)
                    spots, waits = self._spots(launches, places), contents.waits
                    hidden = contents.unknown and not (spots and _regardless(launches, sampled, index, contents))
                    compared, unknown = compared + bool(spots), unknown + bool(spots and hidden)
                    starved = starved or bool(spots and hidden and writers.exhausted and not waits)
                    own += [] if hidden else spots
                    if waits and at < len(few):
                        own += self._come_earlier(launches, sampled, index, contents, places)
                if starved and compared - unknown == before:
                    exhausted.append(sampled.program.name)
                if share:
                    changed.append(Changed(tuple(own), share, len(tallies)))
                else:
                    written += own
                if self._recounts and _is_more(sampled.tallies, tallies):
                    self._count_anew(launches, sampled, tallies, contents)
            writers.grant(KEPT_BACK * self._budget / max(1, writing))
            of_ops = self._of_others(launches, writers, outputs)
            written += of_ops
            compared += bool(of_ops)
        names = tuple(dict.fromkeys(exhausted))
        return Found(tuple(written), tuple(changed), compared, unknown, names, writers.unsummed)

    def _looked_at(
        self, launches: Launches, writers: Writers, outputs: Sequence[Any]
    ) -> list[tuple[Sampled, int, dict[int, list[Place]], float]]:
        """The launches of this call that programs are run of, with their places in the log; see `_places` for the rest."""
        found = []
        for sampled in launches.sampled:
            place = writers.place(sampled)
            if sampled.tallies and place is not None and place >= writers.first:
                found.append((sampled, place, *self._places(launches, sampled, writers.log[place:], outputs)))
        return found

    def _chosen(self, sampled: Sampled, most: int) -> list[int]:
        """Indices of the programs to run, most of them of none that was counted."""
        total = math.prod(sampled.program.size)
        chosen = [self._random.randrange(total) for _ in range(2 * most)]
        chosen.sort(key=lambda index: index in sampled.tallies)
        return list(dict.fromkeys(chosen))[:most]

    def _come_earlier(
        self, launches: Launches, sampled: Sampled, index: int, contents: Contents, places: Mapping[int, list[Place]]
    ) -> list[Spot]:
        """What a program that waits for the others, as the last one to raise a counter does, writes where it is not the
        last: a GPU lets any program come first, whatever its number."""
        contents.earlier = 1
        try:
            launches.computed(sampled.program, index, contents)
        finally:
            contents.earlier = 0
        return [] if contents.unknown else self._spots(launches, places)

    def _known(self, launches: Launches, inputs: Sequence[Any]) -> dict[int, Content]:
        """What lies in storages before anything is written, by number."""
        storages = launches.storages
        known: dict[int, Content] = {n: Whole(as_array(flat(tensor))) for n, tensor in storages.real.items()}
        for record in (*launches.before, *unfolded(launches.log)):
            value = FILLED.get(str(record.get("op")).rpartition(".")[2])
            kind = "uint16" if value == 0 and record["dtype"] == "bfloat16" else record.get("dtype")
            for number, size in record["writes"] if value is not None and hasattr(np, str(kind)) else ():
                if size == storages.sizes[number]:
                    known.setdefault(number, Filled(np.full(1, value, np.dtype(kind))))
        if self._tiling is None and len(inputs) == len(self._small):
            for tensor, small in zip(inputs, self._small, strict=True):
                if small.numel():
                    values = as_array(small.detach().contiguous().reshape(-1))
                    whole = not small.is_floating_point() and small.shape == tensor.shape and tensor.is_contiguous()
                    known[storages.number(tensor)] = Whole(values) if whole else Drawn(values, self._salt)
        if self._tiling is not None:
            given = {storages.number(tensor) for tensor in inputs}
            if not any("graph" in record for record in launches.log):  # what one keeps was written before
                for number in {*range(len(storages.sizes))} - given:
                    known.setdefault(number, Poison())
            for tensor, small, tiled in zip(inputs, self._small, self._tiling.inputs, strict=True):
                content = repeated(
                    small.shape, tensor, tiled.axes, self._orders, as_array(small.detach().contiguous().reshape(-1))
                )
                if content is not None:
                    known[storages.number(tensor)] = content
        return known

    def _places(
        self, launches: Launches, sampled: Sampled, log: Sequence[Record], outputs: Sequence[Any]
    ) -> tuple[dict[int, list[Place]], float]:
        """Where the elements of outputs that this launch writes lie in the small draw's, by storage, and which share of one
        others change besides, or it itself by atomics. Outputs of which more than `MIXED` are changed are left out."""
        places: dict[int, list[Place]] = {}
        most = 0.0
        if self._tiling is None or len(outputs) != len(self._tiling.outputs):
            return places, most
        for position, (tensor, tiled) in enumerate(zip(outputs, self._tiling.outputs, strict=True)):
            number = launches.storages.number(tensor)
            share = _changed_share(sampled, log, number, launches.storages.sizes[number])
            if share > MIXED:
                continue
            small = self._small_place(tensor, tiled)
            if small is not None:
                places.setdefault(number, []).append((position, small))
                most = max(most, share)
        return places, most

    def _of_others(self, launches: Launches, writers: Writers, outputs: Sequence[Any]) -> list[Spot]:
        """Some elements of outputs that a torch op is the last to write, and a few of those that only atomics do, where they
        can be computed."""
        found: list[Spot] = []
        if self._tiling is None or len(outputs) != len(self._tiling.outputs):
            return found
        contents = writers.before(len(writers.log))
        for position, (tensor, tiled) in enumerate(zip(outputs, self._tiling.outputs, strict=True)):
            small, number = self._small_place(tensor, tiled), launches.storages.number(tensor)
            kept = KEPT if contents.is_of_an_op(number) else ADDED if contents.is_of_atomics(number) else 0
            if small is None or not kept or not tensor.numel():
                continue
            last = next(record for record in reversed(writers.log) if number in [n for n, _ in record["writes"]])
            if kept == KEPT and dict(last["writes"])[number] < MIXED * launches.storages.sizes[number]:
                continue  # most of it is what launches have written
            picked = np.unravel_index(
                [self._random.randrange(tensor.numel()) for _ in range(kept)], tuple(tensor.shape) or (1,)
            )
            strides = tuple(tensor.stride()) or (0,)
            elements = int(tensor.storage_offset()) + sum(at * step for at, step in zip(picked, strides, strict=True))
            values = contents.element(number, np.asarray(elements))
            numbers = None if values is None else _as_numbers(values, str(tensor.dtype))
            if numbers is not None:
                where = small.places(np.asarray(elements))
                found += [(position, int(w), float(v)) for w, v in zip(where, numbers, strict=True)]
        return found

    def _small_place(self, tensor: Any, tiled: Tiled) -> Repeated | None:
        """How an output repeats the small draw's; None where it is of another shape, or its elements overlap."""
        assert self._tiling is not None
        if tuple(tensor.shape) != tiled.shape:
            return None
        rows = [few for _, few in self._tiling.sizes]
        shape = [rows[axis] if axis >= 0 else size for axis, size in zip(tiled.axes, tiled.shape, strict=True)]
        return repeated(shape, tensor, tiled.axes, self._orders)

    def _spots(self, launches: Launches, places: Mapping[int, list[Place]]) -> list[Spot]:
        """Some of what the last program wrote to outputs."""
        found: list[Spot] = []
        storages, total = launches.storages, sum(len(each[0]) for each in launches.meter.left.written)
        for addresses, values, dtype in launches.meter.left.written:
            number = storages.find(int(addresses.min())) if addresses.size else None
            numbers = _as_floats(values, dtype)
            if number is None or numbers is None or number not in places or storages.beyond(number, addresses):
                continue
            count = min(addresses.size, max(1, KEPT * addresses.size // total))
            picked = np.asarray(self._random.sample(range(addresses.size), count))
            # The largest are a few among many where results are steep, and all that tells there.
            picked[: count // LARGEST] = np.argsort(-np.abs(np.nan_to_num(numbers)), kind="stable")[: count // LARGEST]
            elements = storages.offset(number, addresses[picked].astype(np.int64)) // values.itemsize
            for position, small in places[number]:
                inside = small.inside(elements)
                where = small.places(elements[inside])
                found += [(position, int(w), float(v)) for w, v in zip(where, numbers[picked][inside], strict=True)]
        return found

    def _count_anew(self, launches: Launches, sampled: Sampled, tallies: dict[int, Tally], contents: Contents) -> None:
        """Replace a launch's record by one from programs that were drawn in secret and compute."""
        total = math.prod(sampled.program.size)
        count = min(total, ANEW)
        work = sum(tally.work for tally in tallies.values())
        for part in self._random.sample(range(count), count):
            index = part * total // count + self._random.randrange(
                max(1, (part + 1) * total // count - part * total // count)
            )
            if index in tallies:
                continue
            if work > launches.limits.work:
                break
            tallies[index] = launches.computed(sampled.program, index, contents)
            work += tallies[index].work
        anew = launches.summarized(sampled.program, tallies)
        old = sampled.record
        if _cost(anew) > MORE * _cost(old):
            old.update(anew)


def _regardless(launches: Launches, sampled: Sampled, index: int, contents: Contents) -> bool:
    """Whether what a program writes does not hang on floating numbers that it loads and nobody knows: it writes the same
    whatever they are."""
    found: list[list[Array | None]] = []
    for guess in GUESSES if contents.guessable else ():
        contents.guess = guess
        try:
            launches.computed(sampled.program, index, contents)
        finally:
            contents.guess = None
        found.append([_as_floats(values, dtype) for _, values, dtype in launches.meter.left.written])
    if not found or any(len(each) != len(found[0]) for each in found):
        return False
    return all(_same(one, other) for each in found[1:] for one, other in zip(found[0], each, strict=True))


def _same(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.shape != other.shape or not np.isfinite(one).all():
        return False
    near = SAME * float(np.sqrt(np.mean(np.square(one)))) if one.size else 0.0
    return bool(np.isfinite(other).all()) and bool((np.abs(one - other) <= near + SAME * np.abs(one)).all())


def _changed_share(sampled: Sampled, log: Sequence[Record], number: int, size: int) -> float:
    """Which share of a storage is changed at most besides what the first of some launches stores there: by later ones, but
    for those of the same kernel that do not read it, which write another part, and by its own atomics."""
    kernel = log[0]["kernel"]
    later = sum(
        written
        for record in log[1:]
        for n, written in record["writes"]
        if n == number and (record.get("kernel") != kernel or number in [m for m, _ in record["reads"]])
    )
    raised = ELEMENT * int(log[0]["atomics"]) if is_raised(sampled, number) else 0
    return float(min(1.0, (later + raised) / max(1, size)))


def _is_more(sample: Mapping[int, Tally], found: Mapping[int, Tally]) -> bool:
    """Whether programs do more than those of the sample that they lie between."""
    indices = sorted(sample)
    for value in (_work, _products, _read):
        expected, seen = [], []
        for index, tally in found.items():
            place = bisect.bisect_left(indices, index)
            beside = [sample[index]] if index in sample else [sample[n] for n in indices[max(0, place - 1) : place + 1]]
            expected.append(max(map(value, beside)))
            seen.append(value(tally))
        mean = sum(map(value, sample.values())) / len(sample)
        if any(a > MORE * b for a, b in zip(seen, expected, strict=True)) and sum(seen) > MORE * mean * len(seen):
            return True
    return False


def _work(tally: Tally) -> float:
    return tally.work


def _products(tally: Tally) -> float:
    return tally.dot_flops


def _read(tally: Tally) -> float:
    return float(tally.sectors_read)


def _cost(record: Record) -> float:
    """What a launch comes to, as one number, to say whether one count of it is above another."""
    return max(record["sector_read"] + record["sector_written"], record["alu_ops"] / 8, record["dot_flops"] / 256)


def _as_numbers(values: Array, dtype: str) -> Array | None:
    """Raw values of a tensor of torch as numbers; None for types that are not compared."""
    if dtype == "torch.bfloat16":
        return bf16_to_f32(values.view(np.uint16))
    return values.astype(np.float64) if dtype.startswith(("torch.float16", "torch.float32", "torch.int")) else None


def _as_floats(values: Array, dtype: Any) -> Array | None:
    """Stored values as numbers; None for types that are not compared."""
    name = dtype.name
    if name == "bf16":
        return bf16_to_f32(values.view(np.uint16))
    return values.astype(np.float64) if name.startswith(("fp16", "fp32", "fp64", "int", "uint")) else None
