"""Example: a module of the zoo with the arguments of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree


@dataclass(frozen=True)
class Example:
    """A live module with random weights, and the arguments of one call of it."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> Example:
        """The same with floating weights, buffers and inputs in another dtype. The module itself is converted."""
        args, kwargs = pytree.tree_map(lambda leaf: _converted(leaf, dtype), (self.args, dict(self.kwargs)))
        return Example(self.module.to(dtype), args, kwargs)

    def on(self, device: str) -> Example:
        """The same on another device. The module itself is moved."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), (self.args, dict(self.kwargs)))
        return Example(self.module.to(device), args, kwargs)


Builder = Callable[[], Example]


def _converted(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def example(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Example:
    """A module in evaluation mode and a call of it."""
    return Example(module.eval(), args, kwargs)
