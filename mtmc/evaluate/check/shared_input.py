"""The shared input buffer: memory in which a check hands inputs to a candidate's process, and looks at them afterwards.

What a candidate's process says of its inputs proves nothing; what lies in memory that both sides see does. The memory is
that of a file without a name, which both have open since before the fork.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.check.layout import Place, extent, place, view
from mtmc.evaluate.reference.blocks import same_bits
from mtmc.evaluate.reference.returned import tensors_in


class SharedInputBuffer:
    """Made in the present folder before the fork; then the check calls `put` and `changed`, the candidate's side `take`.

    What lies on it holds until the next `put`.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=Path.cwd(), buffering=0)  # noqa: SIM115 - open until the process ends
        self._memory: mmap.mmap | None = None
        self._places: list[Place] = []

    def put(self, inputs: list[Any]) -> list[Any]:
        """Lay the tensors out. Returns: the inputs with a `Place` for each of them.

        Raises: TaskError for a tensor that is not dense, or for more bytes than a job may write to a file.
        """
        tensors = tensors_in(inputs)
        sparse = [tensor.layout for tensor in tensors if tensor.layout is not torch.strided]
        if sparse:
            raise TaskError(f"an input has the layout {sparse[0]}; a candidate can be handed dense tensors only")
        self._places, size = place(tensors)
        try:
            if os.fstat(self._file.fileno()).st_size < size:
                os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            message = (
                f"inputs of {size >> 20} MiB cannot be handed to a candidate ({error}); give the task smaller shapes"
            )
            raise TaskError(message) from error
        for spot, tensor in zip(self._places, tensors, strict=True):
            self._flat(spot).copy_(_flattened(tensor))
        spots = {id(tensor): spot for tensor, spot in zip(tensors, self._places, strict=True)}
        placed: list[Any] = _replaced(inputs, lambda leaf: spots[id(leaf)] if isinstance(leaf, torch.Tensor) else leaf)
        return placed

    def take(self, inputs: list[Any]) -> list[Any]:
        """The inputs that `put` returned, with tensors again: of memory that belongs to each of them alone."""
        taken: list[Any] = _replaced(inputs, lambda leaf: self._tensor(leaf) if isinstance(leaf, Place) else leaf)
        return taken

    def changed(self, inputs: list[Any]) -> list[int]:
        """Positions of the tensors among the inputs of the last `put` whose memory is no longer what was put there."""
        pairs = enumerate(zip(self._places, tensors_in(inputs), strict=True))
        return [at for at, (spot, tensor) in pairs if not same_bits(self._flat(spot), _flattened(tensor))]

    def left(self, positions: Iterable[int]) -> dict[int, torch.Tensor]:
        """Copies of what lies now where some tensors of the last `put` were put, by position."""
        return {at: self._tensor(self._places[at]).clone() for at in positions}

    def _tensor(self, spot: Place) -> torch.Tensor:
        return view(self._bytes(spot), replace(spot, offset=0))

    def _flat(self, spot: Place) -> torch.Tensor:
        return self._bytes(spot).view(getattr(torch, spot.dtype))

    def _bytes(self, spot: Place) -> torch.Tensor:
        """The memory of a place, as a storage of its own, so that an access beyond it is one beyond the tensor."""
        size = extent(spot.shape, spot.strides, getattr(torch, spot.dtype).itemsize)
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        if self._memory is None or len(self._memory) < spot.offset + size:
            self._memory = mmap.mmap(self._file.fileno(), 0)
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=size, offset=spot.offset)


def _flattened(tensor: torch.Tensor) -> torch.Tensor:
    """All elements from a tensor's first to its last, with what lies between where its strides leave gaps."""
    tensor = tensor.detach()
    count = extent(tensor.shape, tensor.stride(), 1)
    return tensor.as_strided((count,), (1,))


def _replaced(value: Any, function: Any) -> Any:
    """`value` with `function` applied to every leaf of its nested lists, tuples and dicts."""
    if isinstance(value, list | tuple):
        return type(value)(_replaced(item, function) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, function) for key, item in value.items()}
    return function(value)
