"""Bounds of interpreted kernels: an access outside of the launch's tensors is an error with its line.

The interpreter reads and writes real memory at whatever address a kernel computes, and so would a GPU: a neighbour's
data as a rule, sometimes a crash. Runs in check workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

_Array = np.ndarray[Any, Any]
_POINTER_FLOOR = 1 << 32  # larger integers in a tensor are taken for addresses


class OutOfBoundsError(IndexError):
    """A kernel touched memory outside of all tensors it was given."""


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """While open, every load, store and atomic of a launch must lie inside a tensor that the launch was given.

    A launch that is given a tensor of addresses is not checked: what they point at is unknown.
    Raises (in the kernel): OutOfBoundsError.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    guard = _Guard()
    names = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    originals = {name: getattr(builder, name) for name in names}
    original_run = interpreter.InterpretedFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with guard.launch([*args, *kwargs.values()]):
            return original_run(self, *args, **kwargs)

    def guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        mask_at = {"create_masked_load": 1, "create_masked_store": 2, "create_atomic_rmw": 3}.get(name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            at = 1 if name == "create_atomic_rmw" else 0
            mask = args[mask_at] if mask_at is not None and mask_at < len(args) else None
            guard.check(name, args[at], mask)
            return original(self, *args, **kwargs)

        return method

    for name, original in originals.items():
        setattr(builder, name, guarded(name, original))
    interpreter.InterpretedFunction.run = run
    try:
        yield
    finally:
        interpreter.InterpretedFunction.run = original_run
        for name, original in originals.items():
            setattr(builder, name, original)


class _Guard:
    """Address ranges of the tensors of the present launch, sorted by start; None where nothing is checked."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] | None = None

    @contextlib.contextmanager
    def launch(self, arguments: list[Any]) -> Iterator[None]:
        before, self._ranges = self._ranges, _ranges(arguments)
        try:
            yield
        finally:
            self._ranges = before

    def check(self, access: str, pointers: Any, mask: Any) -> None:
        if self._ranges is None:
            return
        addresses = pointers.data
        # Triton 3.6 masks the accesses of a tensor descriptor by a plain array.
        allowed = mask if mask is None or isinstance(mask, np.ndarray) else mask.data
        if allowed is not None and not allowed.all():
            addresses = addresses[np.broadcast_to(allowed, addresses.shape)]
        if addresses.size == 0:
            return
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        low, high = int(addresses.min()), int(addresses.max()) + size
        if any(start <= low and high <= end for start, end in self._ranges):
            return
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, end in self._ranges:
            inside |= (addresses >= start) & (addresses <= max(start, end - size))
        if inside.all():
            return
        raise OutOfBoundsError(self._message(access, addresses[~inside], addresses.size, size))

    def _message(self, access: str, outside: _Array, total: int, size: int) -> str:
        kind = {"create_masked_load": "load", "create_masked_store": "store"}.get(access, "atomic")
        address = int(outside.flat[0])
        start, end = min(self._ranges or [(0, 0)], key=lambda r: min(abs(address - r[0]), abs(address - r[1])))
        if address >= end:
            where = f"{(address - end) // size + 1} elements past the end"
        else:
            where = f"{(start - address + size - 1) // size} elements before the start"
        return (
            f"a {kind} of {total} elements has {outside.size} outside of every tensor passed to the kernel; "
            f"the first is {where} of the nearest one. Mask it, or correct the offsets"
        )


def _ranges(arguments: list[Any]) -> list[tuple[int, int]] | None:
    ranges = set()
    stack = list(arguments)
    while stack:
        value = stack.pop()
        if isinstance(value, list | tuple):
            stack += value
            continue
        tensor = getattr(value, "base", None) if not isinstance(value, torch.Tensor) else value
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel() and int(tensor.max()) > _POINTER_FLOOR:
            return None
        storage = tensor.untyped_storage()
        ranges.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
    return sorted(ranges)
