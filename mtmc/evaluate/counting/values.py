"""Arguments of launches and of torch's ops as plain JSON, and back.

Numbers, texts and lists are as they are, anything else is a dict of one item: what kernels may look up
(`mtmc.evaluate.loading.jitted.constant`), and

    {"tensor": [storage, dtype, offset, shape, strides]}, {"dtype": name}, {"device": ""}, {"layout": name},
    {"memory_format": name}, {"complex": [real, imaginary]}, {"dict": [[key, value], ...]}, {"slots": [name, names, values]}
    (a named tuple), {"descriptor": {field: value}} (a tensor descriptor), {"reinterpreted": [tensor, dtype]}
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from mtmc.evaluate.counting.journal import Place
from mtmc.evaluate.counting.program import UncountableError
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.loading.jitted import ABSENT, constant
from mtmc.evaluate.plain import MalformedError


def placed(tensor: Any, storages: Storages) -> Place:
    """A tensor as plain data."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    return Place(storages.number(tensor), dtype, int(tensor.storage_offset()), shape, strides)


def plain(value: Any, storages: Storages) -> Any:
    """A value as plain JSON. Raises: UncountableError for one that no launch or op of torch needs."""
    import torch
    from triton.runtime.jit import TensorWrapper
    from triton.tools.tensor_descriptor import TensorDescriptor

    def inner(each: Any) -> Any:
        return plain(each, storages)

    if isinstance(value, torch.Tensor):
        return {"tensor": list(dataclasses.astuple(placed(value, storages)))}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"slots": [type(value).__name__, list(value._fields), [inner(each) for each in value]]}
    if isinstance(value, tuple):
        return {"tuple": [inner(each) for each in value]}
    if isinstance(value, list):
        return [inner(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[inner(key), inner(each)] for key, each in value.items()]}
    if isinstance(value, torch.device | torch.Generator):
        return {"device": ""} if isinstance(value, torch.device) else None
    for kind in (torch.dtype, torch.layout, torch.memory_format):
        if isinstance(value, kind):
            return {kind.__name__: str(value).removeprefix("torch.")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, TensorWrapper):
        return {"reinterpreted": [inner(value.base), inner(value.dtype)]}
    if isinstance(value, TensorDescriptor):
        fields = dataclasses.fields(value)
        return {"descriptor": {each.name: _listed(inner(getattr(value, each.name))) for each in fields}}
    found = constant(value)
    if found is ABSENT:
        raise UncountableError(
            f"{str(value)[:100]!r} ({type(value).__name__}) is an argument of a launch or an op, and neither a number, a "
            "text, a type, a tensor nor a kernel; pass what it stands for"
        )
    return found


def _listed(value: Any) -> Any:
    """A descriptor's shapes as lists, whichever they were."""
    return value["tuple"] if isinstance(value, dict) and "tuple" in value else value


def storages_in(value: Any) -> set[int]:
    """The storages of the tensors in plain JSON."""
    if isinstance(value, dict) and "tensor" in value:
        return {int(value["tensor"][0])}
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return set[int]().union(*map(storages_in, parts))


class Values:
    """From plain JSON back to values, with tensors that have a place and no memory.

    mode: the fake mode that these belong to. constants: makes a value of what `loading.jitted.constant` gives.
    """

    def __init__(self, mode: Any, storages: Storages, constants: Callable[[Any], Any]) -> None:
        self._mode, self._storages, self._constants = mode, storages, constants
        self._tensors: dict[Place, Any] = {}
        self._bases: list[Any] = []

    def add(self, size: int) -> None:
        """One more storage, of so many bytes. Raises: MalformedError."""
        import torch

        if not 0 <= size < 1 << 50:
            raise MalformedError(f"{size} bytes are no storage")
        self.hold(torch.empty(size, dtype=torch.uint8, device="meta"))

    def hold(self, tensor: Any) -> None:
        """One more storage, that of a tensor, which no other one has had."""
        self._storages.number(tensor)
        self._bases.append(tensor.untyped_storage())

    def tensor(self, place: Place) -> Any:
        """A fake tensor; the same one for the same place. Raises: MalformedError where there is no such storage."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        if place not in self._tensors:
            dtype = _of_torch(place.dtype, torch.dtype)
            last = sum((n - 1) * step for n, step in zip(place.shape, place.strides, strict=True))
            fits = 0 <= place.storage < len(self._bases) and place.offset >= 0
            fits = fits and min((0, *place.shape, *place.strides)) == 0
            if fits and 0 not in place.shape:
                fits = (place.offset + last + 1) * dtype.itemsize <= self._storages.sizes[place.storage]
            if not fits:
                raise MalformedError(f"{place} lies in no storage")
            bare = torch.empty(0, dtype=dtype, device="meta")
            bare.set_(self._bases[place.storage], place.offset, place.shape, place.strides)
            self._tensors[place] = FakeTensor(self._mode, bare, torch.device("cpu"))
        return self._tensors[place]

    def value(self, data: Any) -> Any:
        """What was made plain. Raises: MalformedError."""
        if isinstance(data, list):
            return [self.value(each) for each in data]
        if not isinstance(data, dict):
            return self._constants(data)
        if len(data) != 1:
            raise MalformedError(f"{str(data)[:100]!r} is no value")
        ((kind, inner),) = data.items()
        make = getattr(self, f"_{kind}", None) if kind in _KINDS else None
        return self._constants(data) if make is None else make(inner)

    def _tensor(self, data: Any) -> Any:
        if not isinstance(data, list) or len(data) != 5:
            raise MalformedError(f"{str(data)[:100]!r} is no tensor")
        storage, dtype, offset, *rest = data
        numbers = [storage, offset, *(n for each in rest for n in each)]
        if type(dtype) is not str or any(type(n) is not int for n in numbers) or len(rest[0]) != len(rest[1]):
            raise MalformedError(f"{str(data)[:100]!r} is no tensor")
        return self.tensor(Place(storage, dtype, offset, tuple(rest[0]), tuple(rest[1])))

    def _tuple(self, data: Any) -> Any:
        return tuple(self.value(each) for each in data)

    def _slots(self, data: Any) -> Any:
        name, fields, values = data
        return collections.namedtuple(name, fields)(*(self.value(each) for each in values))

    def _dict(self, data: Any) -> Any:
        return {self.value(key): self.value(each) for key, each in data}

    def _device(self, data: Any) -> Any:
        import torch

        return torch.device("cpu")

    def _dtype(self, data: Any) -> Any:
        import torch

        return _of_torch(data, torch.dtype)

    def _layout(self, data: Any) -> Any:
        import torch

        return _of_torch(data, torch.layout)

    def _memory_format(self, data: Any) -> Any:
        import torch

        return _of_torch(data, torch.memory_format)

    def _complex(self, data: Any) -> Any:
        return complex(*data)

    def _reinterpreted(self, data: Any) -> Any:
        from triton.runtime.jit import TensorWrapper

        return TensorWrapper(self.value(data[0]), self.value(data[1]))

    def _descriptor(self, data: Any) -> Any:
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(**{str(name): self.value(each) for name, each in data.items()})


_KINDS = ("tensor", "tuple", "slots", "dict", "device", "dtype", "layout", "memory_format", "complex", "reinterpreted",
          "descriptor")  # fmt: skip


def _of_torch(name: Any, kind: type) -> Any:
    """A constant of torch. Raises: MalformedError where it is none of that kind."""
    import torch

    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, kind):
        raise MalformedError(f"{str(name)[:100]!r} is no {kind.__name__} of torch")
    return found
