"""Tensors that a forward reads and its module does not hold: of a layer in a plain list, an object, a closure, a global.

In the printed file they would be constants, and a version would never see them change. A tensor that forward makes by
itself is a constant rightly, and is told apart by this: it was not there before the module was traced.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from itertools import compress
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.task.tensors import storage_key


def tensors_alive() -> dict[int, torch.Tensor]:
    """All tensors of this process by their storage; they stay alive as long as this does."""
    found: dict[int, torch.Tensor] = {}
    objects, kinds = _objects(), _kinds_of_tensors()
    # There are millions: without a step of Python for each. By the number of a class, as not every class has a hash.
    for each in compress(objects, map(kinds.__contains__, map(id, map(type, objects)))):
        try:
            found.setdefault(storage_key(each), each)
        except Exception:  # no storage: a sparse one, a lazy one, or one of a class of its own
            continue
    return found


def _kinds_of_tensors() -> set[int]:
    """`id` of torch.Tensor and of each class below it."""
    kinds: set[int] = set()
    left: list[type] = [torch.Tensor]
    while left:
        kind = left.pop()
        if id(kind) not in kinds:
            kinds.add(id(kind))
            left += type.__subclasses__(kind)
    return kinds


def _objects() -> list[Any]:
    """All objects of this process that the collector knows, with those that servers freeze before they fork."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.collect()  # or what is garbage by now would be frozen with the rest
    gc.unfreeze()
    found = gc.get_objects()
    gc.freeze()
    return found


def refuse_strangers(constants: Mapping[str, torch.Tensor], alive: Mapping[int, torch.Tensor], name: str) -> None:
    """Refuse a module that reads somebody else's tensors. constants: what the printed file has of no place in the module.

    Raises: TaskError naming the first.
    """
    for tensor in constants.values():
        if storage_key(tensor) in alive:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise TaskError(
                f"module {name}: forward reads a tensor that the module does not hold as its own ({kind}, shape "
                f"{tuple(tensor.shape)}): it is in a list of layers, an object, a closure or a global, where kernels would "
                "not see it change; use nn.ModuleList, nn.Parameter or register_buffer"
            )
