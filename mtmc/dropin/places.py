"""Where the tensors of a captured module are held, so that those are read that are there at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtmc.errors import TaskError


class _Attributes:
    """Attributes of an object, as items: for tensors that neither a registry nor the object's `__dict__` holds."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getitem__(self, key: str) -> Any:
        return getattr(self._owner, key)


def holder(module: torch.nn.Module, path: str) -> tuple[Any, Any]:
    """What holds the tensor at a path of `Capture.places`, and its key there: `found[key]` is the tensor that is there now.

    Raises: TaskError where there is none.
    """
    owner: Any = module
    *way, last = path.split(".")
    try:
        for part in way:
            owner = _step(owner, part)
        container, key = _holder(owner, last)
        if not isinstance(container[key], torch.Tensor):
            raise LookupError(path)
    except (AttributeError, LookupError) as error:
        raise TaskError(
            f"{type(module).__name__} has no tensor at {path!r}: capture the module as it is now"
        ) from error
    return container, key


def _step(owner: Any, part: str) -> Any:
    if hasattr(owner, part):
        return getattr(owner, part)
    container, key = _holder(owner, part)
    return container[key]


def _holder(owner: Any, part: str) -> tuple[Any, Any]:
    if isinstance(owner, torch.nn.Module):
        for registry in (owner._parameters, owner._buffers, vars(owner)):
            if part in registry:
                return registry, part
    if isinstance(owner, Mapping) and part in owner:
        return owner, part
    if isinstance(owner, Sequence | Mapping) and part.isdigit():
        return owner, int(part)
    return _Attributes(owner), part
