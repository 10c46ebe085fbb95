"""Torch ops of a forward on fake tensors, as far as a GPU would run a kernel for them, with the bytes that they touch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mtmc.task.tensors import flat_tensors, storage_key

_EMPTY = ("empty", "new_empty")
_NO_KERNEL = ("resize", "set", "_local_scalar_dense", "lift_fresh")


@dataclass(frozen=True)
class TorchCall:
    """One op that a GPU's library runs. name: e.g. "aten.add". bytes_moved: of its tensors, each once: what it reads, and
    what it makes or changes."""

    name: str
    bytes_moved: int


def torch_calls(log: list[TorchCall]) -> Any:
    """A mode that notes ops while it is open: not views, and not memory that is asked for and left alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func.namespace == "aten":
                found = _call(func, args, kwargs or {}, result)
                if found is not None:
                    log.append(found)
            return result

    return Calls()


def tensor_bytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes of a tensor's elements, those of an expanded dimension once."""
    return math.prod(size for size, stride in zip(shape, strides, strict=True) if stride or size == 0) * itemsize


def _call(func: Any, args: Any, kwargs: Any, result: Any) -> TorchCall | None:
    name = str(func._schema.name).replace("::", ".")
    base = name.rpartition(".")[2]
    if base.rstrip("_") in _NO_KERNEL or base.startswith(_EMPTY):
        return None
    inputs = flat_tensors((args, kwargs))
    owned = {storage_key(tensor) for tensor in inputs}
    fresh = [tensor for tensor in flat_tensors(result) if storage_key(tensor) not in owned]
    if not fresh and not func._schema.is_mutable:
        return None
    touched = {id(tensor): tensor for tensor in [*inputs, *fresh]}.values()
    return TorchCall(name, sum(tensor_bytes(tuple(t.shape), tuple(t.stride()), t.element_size()) for t in touched))
