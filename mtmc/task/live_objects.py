"""Objects among the arguments of a call, which a forward may change: a key-value cache grows with each call.

Whoever calls a module to look at it gives it objects of its own, so that the caller's stay as they are.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping
from typing import Any

import torch

from mtmc.task.tensors import map_tensors, mapped

_DEEP = 8
"""Levels of objects and containers inside of an object in which tensors are looked for."""
_SHARED = (torch.Tensor, torch.nn.Module, str, int, float, type, enum.Enum, type(None))


def own_objects(structure: Any) -> Any:
    """A structure with copies of the objects in it that have attributes; its tensors, modules and functions are the same.

    One object in two places is one object in the copy, too. Tensors inside of objects are copied, without a history.
    """
    memo: dict[int, Any] = {}

    def own(leaf: Any) -> Any:
        if isinstance(leaf, _SHARED) or callable(leaf) or not hasattr(leaf, "__dict__"):
            return leaf
        _copy_tensors(leaf, memo, _DEEP)
        return copy.deepcopy(leaf, memo)

    return mapped(structure, own)


def own_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of one call that share no memory with these, and no object: what a forward does to them is nobody else's."""
    made: tuple[tuple[Any, ...], dict[str, Any]] = map_tensors(own_objects((tuple(args), dict(kwargs))), torch.clone)
    return made


def _copy_tensors(item: Any, memo: dict[int, Any], depth: int) -> None:
    """Put copies of the tensors in an object into `memo`: deepcopy refuses those that have a history."""
    if isinstance(item, torch.Tensor):
        if item.grad_fn is not None:
            memo[id(item)] = item.detach().clone()
    elif depth == 0 or isinstance(item, _SHARED):
        return
    elif isinstance(item, Mapping):
        for part in item.values():
            _copy_tensors(part, memo, depth - 1)
    elif isinstance(item, list | tuple | set):
        for part in item:
            _copy_tensors(part, memo, depth - 1)
    elif hasattr(item, "__dict__"):
        _copy_tensors(vars(item), memo, depth)
