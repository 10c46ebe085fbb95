"""Pieces of memory: where the elements of a tensor lie in its storage, and how many bytes several of them take together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided


@dataclass(frozen=True)
class Piece:
    """A tensor's elements in its storage. first: byte of the first one. steps: size and bytes of the step of each dimension,
    without those that move nowhere, from the widest step to the narrowest. element: bytes of one."""

    first: int
    steps: tuple[tuple[int, int], ...]
    element: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Piece | None:
        """None of a tensor without elements or that is not `placed`, and of one whose sizes are not known (a fake one's)."""
        if not placed(tensor):
            return None
        element = tensor.element_size()
        numbers = (tensor.storage_offset(), *tensor.shape, *tensor.stride())
        if any(type(each) is not int for each in numbers) or tensor.numel() == 0:
            return None
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        steps = [(size, stride * element) for size, stride in sizes if size > 1 and stride]
        return cls(int(tensor.storage_offset()) * element, tuple(sorted(steps, key=lambda step: -step[1])), element)

    @property
    def dense(self) -> int:
        """Bytes of its elements, if no two of them lie at one place."""
        return math.prod(size for size, _ in self.steps) * self.element

    @property
    def end(self) -> int:
        """The byte behind the last one."""
        return self.first + sum((size - 1) * step for size, step in self.steps) + self.element

    @property
    def whole(self) -> bool:
        """Whether it has every byte from its first to its last, as far as its steps tell one after the other."""
        reach = self.element
        for size, step in reversed(self.steps):
            if step > reach:
                return False
            reach += (size - 1) * step
        return True

    @property
    def apart(self) -> bool:
        """Whether no two of its elements overlap, as far as its steps tell one after the other."""
        reach = self.element
        for size, step in reversed(self.steps):
            if step < reach:
                return False
            reach += (size - 1) * step
        return True


def placed(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements lie at steps in one storage: of a sparse one, or a nested one, they do not."""
    return tensor.layout is torch.strided and not tensor.is_nested


def distinct_bytes(pieces: Iterable[Piece]) -> int:
    """Bytes that pieces of one storage take together, each counted once."""
    found = set(pieces)
    ranges = _joined((piece.first, piece.end) for piece in found if piece.whole)
    left = [each for each in found if not any(low <= each.first and each.end <= high for low, high in ranges)]
    if not left:
        return sum(high - low for low, high in ranges)
    if not ranges and len(left) == 1 and left[0].apart:
        return left[0].dense
    return _marked([*left, *(Piece(low, (), high - low) for low, high in ranges)])


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of bytes, those that touch made one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _marked(pieces: list[Piece]) -> int:
    """As `distinct_bytes`, by marking every unit in which they lie. Not by torch: tensors may be fake ones at the moment."""
    low, high = min(piece.first for piece in pieces), max(piece.end for piece in pieces)
    numbers = [each for p in pieces for each in (p.first - low, p.element, *(step for _, step in p.steps))]
    unit = math.gcd(*numbers)
    marks = np.zeros((high - low) // unit, bool)
    for piece in pieces:
        sizes, steps = [size for size, _ in piece.steps], [step // unit for _, step in piece.steps]
        inside = piece.element // unit
        shown = as_strided(marks[(piece.first - low) // unit :], (*sizes, inside), (*steps, 1))
        shown[...] = True
    return int(np.count_nonzero(marks)) * unit
