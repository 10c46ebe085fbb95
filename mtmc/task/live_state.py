"""What a live module holds, and keeping a look at it from changing any of it.

Running or exporting a module can change it: tensors in place, attributes bound anew, lists that grow. A capture puts all
of that back. What a call changes by the module's own rules is found here, too: a tensor that is bound anew (`self.count =
self.count + 1`) becomes a write into the old one, which says the same; what a file's forward cannot do is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.errors import TaskError

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (list, dict, set)
_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, tuple)
_MISSING = object()


@dataclass(frozen=True)
class Held:
    """What a module held at one moment.

    owners: the mappings that hold attributes, parameters and buffers of each submodule, with the path before their names.
    values: what they held. items: lists, dicts and sets among it, their path and what was in them.
    private: paths before the private names of torch's own layers, which are no state (the flat weights of an LSTM).
    """

    owners: tuple[tuple[str, MutableMapping[str, Any]], ...]
    values: tuple[dict[str, Any], ...]
    items: tuple[tuple[str, Any, Any], ...]
    private: frozenset[str]

    @staticmethod
    def by(module: torch.nn.Module) -> Held:
        """What it holds now."""
        owners: list[tuple[str, MutableMapping[str, Any]]] = []
        private = set()
        for prefix, each in module.named_modules():
            start = f"{prefix}." if prefix else ""
            owners += [(start, vars(each)), (start, each._parameters), (start, each._buffers)]
            if type(each).__module__.startswith("torch.nn."):
                private.add(f"{start}_")
        values = tuple(dict(owner) for _, owner in owners)
        items = [
            (start + name, value, type(value)(value))
            for (start, _), held in zip(owners, values, strict=True)
            for name, value in held.items()
            if type(value) in _CONTAINERS and name not in _REGISTRIES
        ]
        return Held(tuple(owners), values, tuple(items), frozenset(private))

    def put_back(self, but_new: bool = False, but: Collection[str] = ()) -> None:
        """Bind everything as it was. What tensors hold in memory is not looked at.

        but_new: see `unchanged`. but: paths of what stays as it is now, too.
        """
        for (start, owner), before in zip(self.owners, self.values, strict=True):
            values = dict(before)
            for name, value in owner.items():
                if (but_new and before.get(name) is None) or start + name in but:
                    values[name] = value
            if owner.keys() != values.keys() or any(owner[name] is not value for name, value in values.items()):
                owner.clear()
                owner.update(values)
        for path, value, before in self.items:
            if path not in but and not _same_items(value, before):
                value.clear()
                value.extend(before) if isinstance(value, list) else value.update(before)

    def bound_anew(self) -> Iterator[tuple[str, MutableMapping[str, Any], str, Any]]:
        """What is something else now: its path, its owner and name there, and what it was (None if it was not there)."""
        for (start, owner), values in zip(self.owners, self.values, strict=True):
            for name, value in list(owner.items()):
                was = values.get(name, _MISSING)
                if value is not was and not _equal(value, was) and not self._is_private(start + name):
                    yield start + name, owner, name, None if was is _MISSING else was
        for path, value, before in self.items:
            if not _same_items(value, before) and not self._is_private(path):
                yield path, {}, path, before

    def _is_private(self, path: str) -> bool:
        start, _, name = path.rpartition(".")
        return name.startswith("_") and f"{start}._".lstrip(".") in self.private


@contextmanager
def unchanged(module: torch.nn.Module, but_new: bool = False) -> Iterator[None]:
    """Put back what is bound anew meanwhile, and what changes in the memory of all tensors but the parameters.

    but_new: leave what is bound where there was nothing, or None, before.
    """
    held = Held.by(module)
    kept = [(tensor, tensor.detach().clone()) for tensor in state_tensors(held)]
    try:
        yield
    finally:
        held.put_back(but_new)
        with torch.no_grad():
            for tensor, before in kept:
                if not same_values(tensor, before):
                    tensor.copy_(before)


def state_tensors(held: Held) -> list[torch.Tensor]:
    """The tensors among what is held, and in its lists and mappings, but no parameters."""
    found = [
        value
        for values in held.values
        for value in values.values()
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
    ]
    inside = [
        value
        for _, _, items in held.items
        for value in (items.values() if isinstance(items, dict) else items)
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
    ]
    return list({id(tensor): tensor for tensor in (*found, *inside)}.values())


@contextmanager
def plain_tensors_as_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Register the tensors that modules keep as plain attributes, so that torch.export can follow them."""
    moved: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
    for each in module.modules():
        for name, value in list(vars(each).items()):
            if isinstance(value, torch.Tensor) and "." not in name and name not in each._buffers:
                del vars(each)[name]
                each._buffers[name] = value
                each._non_persistent_buffers_set.add(name)
                moved.append((each, name, value))
    try:
        yield
    finally:
        for each, name, value in moved:
            each._buffers.pop(name, None)
            each._non_persistent_buffers_set.discard(name)
            vars(each)[name] = value


def write_into_the_old(before: Held) -> None:
    """Turn what a traced forward bound anew into writes into the tensors that were there.

    Raises: TaskError for what is no tensor, or none of the same shape and dtype.
    """
    for path, owner, name, was in before.bound_anew():
        now = owner.get(name)
        if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor) and _replaceable(was, now):
            was.copy_(now)
            owner[name] = was
            continue
        what = f"a tensor of shape {tuple(was.shape)}" if isinstance(was, torch.Tensor) else f"{was!r:.40}"
        raise TaskError(
            f"forward sets its attribute {path} (which was {what}) at every call, which kernels cannot: "
            "keep a tensor of one shape there, registered as a buffer, or take it out of forward"
        )


def _replaceable(was: torch.Tensor, now: torch.Tensor) -> bool:
    sizes = [size for size in now.shape if isinstance(size, torch.SymInt)]
    return not sizes and was.shape == now.shape and was.dtype == now.dtype


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype hold the same, NaN included."""
    if one.shape != other.shape:
        return False
    if one.is_floating_point():
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool((one == other).all())


def _equal(value: Any, was: Any) -> bool:
    return isinstance(value, _SIMPLE) and type(value) is type(was) and bool(value == was)


def _same_items(value: Any, before: Any) -> bool:
    if len(value) != len(before):
        return False
    if isinstance(value, dict):
        return all(key in value and (value[key] is item or _equal(value[key], item)) for key, item in before.items())
    if isinstance(value, set):
        return bool(value == before)
    return all(one is other or _equal(one, other) for one, other in zip(value, before, strict=True))
