"""What lies in the storages that a kernel reads where only shapes are run: what is known of it, element by element.

An input is known at the full shapes without being there: along each axis of a tiling (`mtmc.evaluate.counting.tiling`) it
repeats the rows of a small draw, in a secret order. Without a tiling it
is made of numbers from such a draw; integers are those of a full one, since lengths, offsets and tables say how much
there is to do. Weights are there. What torch fills with one number is that number.
What a torch op of few elements has made is computed when it is asked for
(`mtmc.evaluate.counting.computed`), as is what another launch has written (`mtmc.evaluate.counting.demanded`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.interpreter.standstill import Standstill

Array = np.ndarray[Any, Any]


class Content(Protocol):
    """Of one storage."""

    def read(self, elements: Array) -> Array | None:
        """Values at these elements (int64, counted from the storage's start), in the interpreter's representation; None
        where they are not known."""


@dataclass(frozen=True)
class Whole:
    """A storage that is there. values: all of its elements."""

    values: Array

    def read(self, elements: Array) -> Array:
        """See `Content`."""
        return self.values[np.minimum(elements, self.values.size - 1)]


@dataclass(frozen=True)
class Poison:
    """A new storage that nobody has written: NaN in every type of floating numbers, -1 in all of integers."""

    def read(self, elements: Array) -> Array:
        """See `Content`; who reads knows the type."""
        return np.full(elements.shape, -1, np.int8)


@dataclass(frozen=True)
class Filled:
    """A storage of one number, given as an array of one element."""

    value: Array

    def read(self, elements: Array) -> Array:
        """See `Content`."""
        return np.broadcast_to(self.value.reshape(()), elements.shape)


@dataclass(frozen=True)
class Drawn:
    """A storage whose elements are some of a small draw: what hangs on data does so here."""

    values: Array
    salt: int

    def read(self, elements: Array) -> Array:
        """See `Content`."""
        mixed = (elements + self.salt) * 2654435761 & 0xFFFFFFFF
        return self.values[(mixed >> 7) % self.values.size]


@dataclass(frozen=True)
class Repeated:
    """A tensor that repeats the rows of a small one. values: of the small one, flat and dense.

    start: its first element in the storage. steps: (stride here, size here, stride there, order) of its dimensions, the
    widest stride first. order: row here -> row there, or None for a dimension that both have.
    """

    values: Array
    start: int
    steps: tuple[tuple[int, int, int, Array | None], ...]

    def read(self, elements: Array) -> Array:
        """See `Content`."""
        return self.values[self.places(elements)]

    def places(self, elements: Array) -> Array:
        """Elements of the small tensor, for elements of this storage."""
        rest, there = elements - self.start, np.zeros(elements.shape, np.int64)
        for stride, size, step, order in self.steps:
            row = rest // stride if stride > 1 else rest
            rest = rest - row * stride
            row = np.clip(row, 0, size - 1)
            there += (row if order is None else order[row]) * step
        return there

    def inside(self, elements: Array) -> Array:
        """Which elements of this storage are the tensor's: a storage may hold more than one, or gaps."""
        rest = elements - self.start
        found = rest >= 0
        for stride, size, _, _ in self.steps:
            row = rest // stride
            rest = rest - row * stride
            found &= row < size
        return found & (rest == 0)


class Contents:
    """What a program of a launch finds in storages, by number.

    known: before the launch. made: what its other programs leave in storages that it writes. Programs run at once, so one
        finds that only if it waits for them, by an atomic or a load that it comes back to in the same state; else what was
        there before. Who has locked others out finds what some of them have left, and nobody knows which.
    waits, locks: whether the present program has waited, or locked others out. unknown: whether a read met what is not
        known. missed: the same but for what atomics give back. guess: what such reads
        give, times some numbers; None for ones. guessable: whether they all asked for floating numbers.
    earlier: by how many places a program comes earlier to the counters that it raises than its number says.
    """

    def __init__(
        self, storages: Storages, known: Mapping[int, Content], made: Mapping[int, Content] | None = None
    ) -> None:
        self._storages, self._known, self._made = storages, known, made or {}
        self._still = Standstill()
        self.unknown = self.waits = self.locks = self.missed = False
        self.guess: float | None = None
        self.guessable = True
        self.earlier = 0

    def begin(self) -> None:
        """For a program that has not read anything yet."""
        self.unknown = self.waits = self.locks = self.missed = False
        self.guessable = True
        self._guesses = np.random.default_rng(0)
        self._still = Standstill()

    def read(self, addresses: Array, size: int) -> Array | None:
        """Raw values at addresses (uint64) of elements of `size` bytes; None where any of them is unknown."""
        number = self._storages.find(int(addresses.min())) if addresses.size else None
        found = None
        if number is not None and not self._storages.beyond(number, addresses):
            elements = self._storages.offset(number, addresses.astype(np.int64)) // size
            self.stands()
            made, locked = number in self._made, self.locks and not self.waits
            content = self._made[number] if self.waits and made else self._known.get(number)
            found = None if content is None or (made and locked) else content.read(elements)
            if isinstance(content, Poison) and found is not None:
                found = np.full(elements.shape, -1, f"i{size}")
        if found is not None and found.dtype.itemsize == size:
            return found
        self.unknown = self.unknown or addresses.size > 0
        self.missed = self.missed or addresses.size > 0
        return None

    def before(self, addresses: Array, size: int) -> Array | None:
        """Raw values at addresses before the launch, as far as they are known; that they are asked for changes nothing."""
        number = self._storages.find(int(addresses.min()))
        content = None if number is None else self._known.get(number)
        if number is None or content is None or isinstance(content, Poison) or self._storages.beyond(number, addresses):
            return None
        found = content.read(self._storages.offset(number, addresses.astype(np.int64)) // size)
        return found if found is not None and found.dtype.itemsize == size else None

    def guessed(self, shape: tuple[int, ...], kind: Any) -> Array | None:
        """Numbers for a read of what is not known, None for none but ones."""
        self.guessable = self.guessable and kind.kind == "f"
        if self.guess is None or kind.kind != "f":
            return None
        return (self._guesses.lognormal(size=shape) * self.guess).astype(kind)

    def is_of_an_op(self, number: int) -> bool:
        """Whether a torch op was the last to write a storage."""
        return getattr(self._known.get(number), "of_an_op", False)

    def is_of_atomics(self, number: int) -> bool:
        """Whether an op of torch makes a storage, and all else that is done to it are atomics."""
        return getattr(self._known.get(number), "of_atomics", False)

    def element(self, number: int, elements: Array) -> Array | None:
        """Raw values of elements of a storage, None where they are not known."""
        content = self._known.get(number)
        return None if content is None else content.read(elements)

    def whole(self, number: int, size: int) -> Array | None:
        """All elements, of `size` bytes each, of a storage; None where any of them is unknown."""
        content = self._known.get(number)
        count = self._storages.sizes[number] // size
        if content is None or isinstance(content, Poison):
            return None
        found = content.read(np.arange(count))
        return found if found is not None and found.dtype.itemsize == size else None

    def stands(self) -> bool:
        """Of a program that looks at memory: whether it has looked there before just like this, and so waits for others."""
        stands = self._still.again()
        self.waits = self.waits or stands
        return stands

    def changed(self) -> None:
        """The program has changed something in memory: it may count there how often it has looked."""
        self._still.changed()


def repeated(
    shape: Sequence[int], full: Any, axes: Sequence[int], orders: Sequence[Array], values: Array | None = None
) -> Repeated | None:
    """How a tensor, fake or not, repeats a small dense one; None where its elements overlap.

    shape, values: of the small one. axes: for each dimension the number of its axis, or -1. orders: of each axis.
    """
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    steps = sorted(
        (
            (int(stride), int(size), there, orders[axis] if axis >= 0 else None)
            for stride, size, there, axis in zip(full.stride(), full.shape, strides, axes, strict=True)
            if size > 1
        ),
        key=lambda step: -step[0],
    )
    inside = 1
    for stride, size, _, _ in reversed(steps):
        if stride < inside:
            return None
        inside = stride * size
    merged: list[tuple[int, int, int, Array | None]] = []
    for stride, size, there, order in steps:
        last = merged[-1] if merged else None
        if last is not None and order is None is last[3] and last[0] == stride * size and last[2] == there * size:
            merged[-1] = (stride, last[1] * size, there, None)
        else:
            merged.append((stride, size, there, order))
    return Repeated(np.empty(0) if values is None else values, int(full.storage_offset()), tuple(merged))


def as_array(tensor: Any) -> Array:
    """A flat real tensor in the interpreter's representation: types that numpy lacks as unsigned integers."""
    import torch

    plain = (torch.float16, torch.float32, torch.float64, torch.bool)
    if tensor.dtype in plain or not tensor.is_floating_point():
        return np.asarray(tensor.detach().resolve_conj().numpy())
    bits = {1: torch.uint8, 2: torch.int16}[tensor.itemsize]
    return np.asarray(tensor.detach().view(bits).numpy()).view(f"u{tensor.itemsize}")
