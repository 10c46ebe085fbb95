"""A printed module with the live one's tensors, made many times over: its constructor is run once, without data.

The tensors have the same shapes at all shapes of the inputs, so that no constructor has anything to add. Drawing weights
that the live ones then replace takes minutes for large modules, and calling a thousand factories takes long for deep ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from mtmc.errors import TaskError


@dataclass(frozen=True)
class Weights:
    """All parameters and buffers of a module, by name, laid out in memory as its constructor lays them out.

    mold: the module itself, on the meta device.
    """

    tensors: Mapping[str, torch.Tensor]
    mold: torch.nn.Module

    @property
    def largest(self) -> int:
        """Elements of the largest tensor."""
        return max((tensor.numel() for tensor in self.tensors.values()), default=0)

    def module(self, kind: type[torch.nn.Module], data: bool = True) -> torch.nn.Module:
        """A module of a class with the mold's constructor. The parameters are these tensors, the buffers copies of them.

        data: without, all are on the meta device.
        """
        made = kind.__new__(kind)
        vars(made).update({name: copy.copy(value) for name, value in vars(self.mold).items()})
        for name, like in self.mold.named_parameters():
            value = self.tensors[name] if data else like
            made._parameters[name] = torch.nn.Parameter(value, requires_grad=like.requires_grad)
        for name, buffer in self.mold.named_buffers():
            made._buffers[name] = _copy(self.tensors[name] if data else buffer, buffer)
        return made


def weights_of(construct: Callable[[], torch.nn.Module], tensors: Mapping[str, torch.Tensor], name: str) -> Weights:
    """The tensors, for modules that `construct` makes. name: of the task, for errors.

    Raises: TaskError if they are not the module's own, or it has parts; whatever `construct` raises.
    """
    with torch.device("meta"):
        mold = construct()
    own = {**dict(mold.named_parameters()), **dict(mold.named_buffers())}
    shapes = {key: (value.shape, value.dtype) for key, value in own.items()}
    if mold._modules or shapes != {key: (value.shape, value.dtype) for key, value in tensors.items()}:
        raise TaskError(f"task {name}: its state is not that of its Model: print the module and its weights anew")
    return Weights({key: _laid_out(tensors[key], value) for key, value in own.items()}, mold)


def _laid_out(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride() == like.stride() else _copy(tensor, like)


def _copy(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `like`, which `clone` keeps of dense tensors alone."""
    empty = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=tensor.device)
    return empty.copy_(tensor.detach())
