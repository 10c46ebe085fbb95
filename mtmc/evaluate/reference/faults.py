"""Where a tensor is wrong: how many elements, the first, the box around them, gathered a block at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mtmc.evaluate.reference.blocks import Index, origin


class Faults:
    """Elements of one kind of fault in a tensor of shape `shape`; blocks are added in order."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._low = list(shape)
        self._high = [-1] * len(self._shape)
        self.count = 0
        self.first: tuple[int, ...] = ()

    def add(self, wrong: torch.Tensor, index: Index) -> None:
        """Note the faults of one block. wrong: bool, of the block's shape. index: the block's, see `blocks`."""
        count = int(wrong.sum())
        if not count:
            return
        start = origin(index, wrong.dim())
        if not self.count:
            self.first = _place(wrong.reshape(-1).to(torch.uint8).argmax(), wrong.shape, start)
        self.count += count
        for dim in range(wrong.dim()):
            lines = wrong.movedim(dim, 0).flatten(1).any(1) if wrong.dim() > 1 else wrong
            hit = lines.nonzero()
            self._low[dim] = min(self._low[dim], start[dim] + int(hit[0]))
            self._high[dim] = max(self._high[dim], start[dim] + int(hit[-1]))

    @property
    def share(self) -> str:
        """ "3 of 12 elements"."""
        total = 1
        for size in self._shape:
            total *= size
        return f"{self.count} of {total} elements"

    @property
    def box(self) -> str:
        """Where the faults lie, if not from end to end: a hint at a bad mask or offset."""
        if all(a == 0 and b == n - 1 for a, b, n in zip(self._low, self._high, self._shape, strict=True)):
            return ""
        ranges = (f"{a}:{b + 1}" for a, b in zip(self._low, self._high, strict=True))
        return ", all within [" + ", ".join(ranges) + "]"


class Worst:
    """The largest of some values and its place, over blocks that are added in order."""

    def __init__(self) -> None:
        self.value = -1.0
        self.place: tuple[int, ...] = ()

    def add(self, values: torch.Tensor, index: Index) -> None:
        """Note one block. values: of the block's shape, not NaN. index: the block's, see `blocks`."""
        flat = values.reshape(-1)
        at = flat.argmax()
        if float(flat[at]) > self.value:
            self.value = float(flat[at])
            self.place = _place(at, values.shape, origin(index, values.dim()))


def _place(at: torch.Tensor, shape: torch.Size, start: Sequence[int]) -> tuple[int, ...]:
    local = torch.unravel_index(at, shape) if shape else ()
    return tuple(int(i) + base for i, base in zip(local, start, strict=True))
