"""How a tensor lies in memory, as text: the part of a dense tensor that has its strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Layout:
    """A tensor as a part of a dense one.

    dims: of the tensor, in the order of the dense one's. memory: sizes of the dense tensor, as text; one more than `dims`
    where neighbours along the last one do not lie side by side. shape: sizes of the tensor, as text.
    """

    dims: tuple[int, ...]
    memory: tuple[str, ...]
    shape: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is a contiguous tensor."""
        return self.dims == tuple(range(len(self.dims))) and self.memory == self.shape

    def part(self, dense: str) -> str:
        """The expression of the tensor, from that of the dense one (of sizes `memory`)."""
        wanted = [self.shape[dim] for dim in self.dims]
        slices = [":" if have == want else f":{want}" for have, want in zip(self.memory, wanted, strict=False)]
        slices += ["0"] * (len(self.memory) - len(self.dims))
        while slices and slices[-1] == ":":
            slices.pop()
        text = f"({dense})" if "*" in dense and not self.is_whole else dense
        text = f"{text}[{', '.join(slices)}]" if slices else text
        back = [self.dims.index(dim) for dim in range(len(self.dims))]
        return text if back == sorted(back) else f"{text}.permute({', '.join(map(str, back))})"


def contiguous(shape: Sequence[str]) -> Layout:
    """The layout of a contiguous tensor."""
    return Layout(tuple(range(len(shape))), tuple(shape), tuple(shape))


def layout_of(tensor: torch.Tensor, shape: Sequence[str]) -> Layout | None:
    """How a tensor lies in a dense one; None where it lies in none (overlapping windows, expanded tensors).

    shape: its sizes as text.
    """
    if tensor.is_contiguous():
        return contiguous(shape)
    steps = tensor.stride()
    loose = [dim for dim, size in enumerate(tensor.shape) if size == 1]
    dims = sorted((dim for dim in range(tensor.dim()) if dim not in loose), key=lambda dim: -steps[dim])
    memory = [shape[dim] for dim in (*loose, *dims[:1])]
    for outer, dim in pairwise(dims):
        room, rest = divmod(steps[outer], steps[dim]) if steps[dim] else (0, 1)
        if rest or room < tensor.shape[dim]:
            return None
        memory.append(_room(room, tensor.shape[dim], shape[dim]))
    inner = steps[dims[-1]]
    return Layout((*loose, *dims), (*memory, *([str(inner)] if inner > 1 else [])), tuple(shape)) if inner else None


def _room(room: int, size: int, text: str) -> str:
    """The memory of a dimension as text, from its size's."""
    if room == size:
        return text
    if text.isdigit():
        return str(room)
    return f"{room // size} * ({text})" if room % size == 0 else f"{text} + {room - size}"


def as_tuple(parts: Sequence[str]) -> str:
    """A tuple of texts as text."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
