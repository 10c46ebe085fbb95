"""Some rows of what a large torch op makes, computed from the same rows of what it is given.

An elementwise op, a reduction over other dimensions than the first, a product of rows with one matrix: each row of the
result hangs on a row of the arguments alone. Which ops do so is known by name; of the others nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mtmc.evaluate.counting.contents import Array, Contents, as_array
from mtmc.evaluate.counting.storages import Storages
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    import torch

_COPIES = ("clone", "_to_copy")
_OVER_DIMS = ("amax", "amin", "sum", "mean", "prod", "var", "std", "var_mean", "_softmax", "_log_softmax", "max", "min",
              "argmax", "argmin", "logsumexp", "linalg_vector_norm", "cumsum", "cumprod", "sort", "topk")  # fmt: skip
_ROWS_OF = {"mm": (0,), "addmm": (1,), "bmm": (0, 1), "convolution": (0,), "native_layer_norm": (0,)}
"""Ops -> places of the arguments whose first dimension is that of the result."""


@dataclass
class Rows:
    """Rows of a tensor that an op makes. sliced: of each tensor among the arguments whether it goes row by row. at: which of
    the results it is. limit: bytes of all that is read at a time."""

    call: tuple[Any, Any, Any, Any]
    sliced: Sequence[bool]
    at: int
    storages: Storages
    contents: Contents
    limit: int
    _last: tuple[Array, Array] = field(default=(np.empty(0, np.int64), np.empty(0)))

    def read(self, elements: Array) -> Array | None:
        """See `Content`."""
        made = flat_tensors(self.call[3])[self.at]
        places = elements.ravel() - int(made.storage_offset())
        width = max(1, int(made.stride()[0]))
        rows = np.unique(places // width)
        if not rows.size or rows[0] < 0 or rows[-1] >= made.shape[0]:
            return None
        if not np.isin(rows, self._last[0], assume_unique=True).all():
            values = self._compute(rows)
            if values is None:
                return None
            self._last = rows, values
        at = np.searchsorted(self._last[0], places // width)
        return np.asarray(self._last[1][at, places % width].reshape(elements.shape))

    def _compute(self, rows: Array) -> Array | None:
        """What lies in these rows, one after another."""
        import torch
        from torch._subclasses.fake_tensor import unset_fake_temporarily
        from torch.utils._python_dispatch import _disable_current_modes

        from mtmc.task.tensors import map_tensors

        func, args, kwargs, _ = self.call
        tensors = flat_tensors((args, kwargs))
        counts = [
            rows.size * tensor.numel() // max(1, tensor.shape[0]) if sliced else tensor.numel()
            for tensor, sliced in zip(tensors, self.sliced, strict=True)
        ]
        if sum(count * tensor.element_size() for count, tensor in zip(counts, tensors, strict=True)) > self.limit:
            return None
        with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
            given = [self._given(*pair, rows) for pair in zip(tensors, self.sliced, strict=True)]
            if any(each is None for each in given):
                return None
            left = iter(given)
            again = map_tensors((args, kwargs), lambda _: next(left))
            made = flat_tensors(func(*again[0], **again[1]))[self.at]
            return as_array(made.contiguous().reshape(-1)).reshape(rows.size, -1)

    def _given(self, tensor: Any, sliced: bool, rows: Array) -> torch.Tensor | None:
        """What a tensor among the arguments holds, or these rows of it."""
        import torch

        shape = [rows.size if sliced else tensor.shape[0], *tensor.shape[1:]] if tensor.dim() else []
        at = np.full([1] * len(shape), int(tensor.storage_offset()), np.int64)
        for dim, (size, stride) in enumerate(zip(shape, tensor.stride(), strict=True)):
            steps = (rows if sliced and dim == 0 else np.arange(size)) * int(stride)
            at = at + steps.reshape([-1 if each == dim else 1 for each in range(len(shape))])
        values = self.contents.element(self.storages.number(tensor), at)
        if values is None or values.dtype.itemsize != tensor.element_size():
            return None
        data = bytearray(np.ascontiguousarray(values).tobytes())
        flat = torch.frombuffer(data, dtype=tensor.dtype) if data else torch.empty(0, dtype=tensor.dtype)
        return flat.reshape(shape)


def rows_of(
    call: tuple[Any, Any, Any, Any], number: int, storages: Storages, contents: Contents, limit: int
) -> Rows | None:
    """The rows of a storage that an op makes; None where it does not treat each row by itself, or lays them otherwise.

    call: the op, its arguments, keywords and result. number: of the storage. limit: see `Rows`.
    """
    import torch

    func, args, kwargs, result = call
    results = flat_tensors(result)
    at = next((at for at, tensor in enumerate(results) if storages.number(tensor) == number), None)
    if at is None or not results[at].dim() or not results[at].is_contiguous():
        return None
    own = any(storages.number(tensor) == number for tensor in flat_tensors((args, kwargs)))
    if own and torch.Tag.pointwise not in func.tags:
        return None  # it changes a part of what was there
    sliced = _sliced(func, args, kwargs, results[at])
    return None if sliced is None else Rows(call, sliced, at, storages, contents, limit)


def _sliced(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> list[bool] | None:
    """Of each tensor among the arguments whether its first dimension is the result's; None where rows are mixed."""
    import torch

    base = str(func._schema.name).rpartition("::")[2]
    names = [argument.name for argument in func._schema.arguments]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    tensors = flat_tensors((args, kwargs))
    count = made.shape[0]
    if torch.Tag.nondeterministic_seeded in func.tags or not tensors:
        return None
    if torch.Tag.pointwise in func.tags or base in _COPIES:
        return [tensor.dim() == made.dim() and tensor.shape[0] == count > 1 for tensor in tensors]
    first = tensors[0]
    if base in _ROWS_OF:
        places = [args[place] for place in _ROWS_OF[base] if place < len(args)]
        sound = made.dim() > 1 and (base != "native_layer_norm" or len(bound["normalized_shape"]) < first.dim())
        sound = sound and all(isinstance(each, torch.Tensor) and each.shape[0] == count for each in places)
        found = [at in _ROWS_OF[base] for at, arg in enumerate(args) for _ in flat_tensors(arg)]
        found += [False] * (len(tensors) - len(found))
        return found if sound and (base != "addmm" or first.dim() == 1 or first.shape[0] == 1) else None
    dims = bound.get("dim", -1 if base in ("sort", "topk") else None)
    dims = [dims] if isinstance(dims, int) else dims
    if base not in _OVER_DIMS or not dims or first.dim() < 2 or first.shape[0] != count or len(tensors) > 1:
        return None
    return [True] if all(dim % first.dim() for dim in dims) else None
