"""How tensors lie in memory that a trusted process shares with a candidate's: of a device (the arena), or of a file.

The arena has two pieces, one for each way. Tensors lie one after another, each at a multiple of 512 bytes, which is how
torch's own allocator aligns them, so a kernel built for such pointers fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

ALIGNMENT = 512
SMALL = 1 << 20
"""Bytes of an output below which closing its gaps takes no longer than handing over any other one."""
_copy = torch.Tensor.copy_  # bound before any candidate runs: what it assigns to torch's classes does not reach this


@dataclass(frozen=True)
class Place:
    """Where one tensor lies: bytes from the start, and how to see it there."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def aligned(size: int) -> int:
    """The next multiple of `ALIGNMENT` bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def extent(shape: Sequence[int], strides: Sequence[int], element: int) -> int:
    """Bytes from a strided tensor's first element to the end of its last; 0 where it has none."""
    if any(size == 0 for size in shape):
        return 0
    return (1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))) * element


def place(tensors: Sequence[torch.Tensor]) -> tuple[list[Place], int]:
    """Places for tensors with their own strides, in order, and the bytes they take."""
    places, at = [], 0
    for tensor in tensors:
        name = str(tensor.dtype).removeprefix("torch.")
        places.append(Place(at, name, tuple(tensor.shape), tuple(tensor.stride())))
        at = aligned(at + extent(tensor.shape, tensor.stride(), tensor.element_size()))
    return places, at


def view(memory: torch.Tensor, spot: Place) -> torch.Tensor:
    """The tensor at a place of a piece of memory (uint8)."""
    flat = stretch(memory, spot)
    if flat.numel() == 0:
        return torch.empty_strided(spot.shape, spot.strides, dtype=flat.dtype, device=memory.device)
    return torch.as_strided(flat, spot.shape, spot.strides)


def viewed(memory: torch.Tensor, item: Any) -> Any:
    """Nested arguments, with a tensor at a piece of memory for each `Place` in them."""
    if isinstance(item, Place):
        return view(memory, item)
    if isinstance(item, list | tuple):
        return type(item)(viewed(memory, each) for each in item)
    if isinstance(item, dict):
        return {key: viewed(memory, each) for key, each in item.items()}
    return item


def stretch(memory: torch.Tensor, spot: Place) -> torch.Tensor:
    """All elements of a place from the first to the last, in one dimension, those between them included."""
    dtype = getattr(torch, spot.dtype)
    size = extent(spot.shape, spot.strides, dtype.itemsize)
    return memory[spot.offset : spot.offset + size].view(dtype)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """What `stretch` is of a place made for this tensor: its memory from the first element to the last. An expanded
    tensor has fewer elements there than in its shape, a slice has more."""
    count = extent(tensor.shape, tensor.stride(), 1)
    return torch.as_strided(tensor, (count,), (1,), tensor.storage_offset())


def dense_places(outputs: Sequence[Any]) -> tuple[list[Place | None], int]:
    """Places for the dense copies of outputs, None for what is no tensor, and the bytes they take.

    A copy keeps the order in which its tensor's dimensions lie in memory: to transpose on the way would take time that
    is not the candidate's.
    """
    places: list[Place | None] = []
    at = 0
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            places.append(None)
            continue
        name = str(output.dtype).removeprefix("torch.")
        places.append(Place(at, name, tuple(output.shape), dense_strides(output.shape, memory_order(output))))
        at = aligned(at + output.numel() * output.element_size())
    return places, at


def without_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of an output in which no memory lies unused between its elements; itself where there is none, or where its
    elements take less than `SMALL`.

    Who leaves gaps has them closed in the time of the call, versions and references alike. Handing such an output over
    takes longer than what is calibrated for one of its bytes, and no one but the candidate's process knows by how much.
    """
    element = tensor.element_size()
    dense = tensor.numel() * element
    if dense < SMALL or extent(tensor.shape, tensor.stride(), element) <= dense:
        return tensor
    strides = dense_strides(tensor.shape, memory_order(tensor))
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return _copy(made, tensor)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its dimensions from the widest stride to the narrowest."""
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides of a tensor without gaps, in elements. order: of its dimensions in memory, the outermost first; as they
    come if left out. Raises: ValueError for an order that does not name each dimension once."""
    order = range(len(shape)) if order is None else order
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"{list(order)} is no order of {len(shape)} dimensions")
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)
