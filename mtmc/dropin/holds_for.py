"""HoldsFor: which tensors a version may be given, and which of them it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mtmc.dropin.recipe import Recipe
from mtmc.dropin.reference import captured_sizes, changed_by_reference

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class HoldsFor:
    """What a recipe's version holds for, in tensors alone.

    mutated: places of the tensors that a call changes, in the flat list of inputs and then the module's tensors.
    """

    def __init__(self, recipe: Recipe, tensors: Sequence[torch.Tensor]) -> None:
        """tensors: the module's, as they lie in memory when the version is tried."""
        self._examples = recipe.call.tensors
        self._tensors = [(x.shape, x.dtype, x.stride()) for x in tensors]
        self._sizes = captured_sizes(recipe)
        self.mutated = changed_by_reference(recipe)

    def why_not(self, inputs: Sequence[Any], tensors: Sequence[Any]) -> str | None:
        """Why a version must not be given these tensors, None where it may. inputs: of the call; tensors: the module's."""
        for x in (*inputs, *tensors):
            if type(x) not in _PLAIN:
                return f"it holds a {type(x).__name__}, and its kernels read plain tensors"
            if x.layout != torch.strided or x.is_neg() or x.is_conj() or x.is_quantized:
                return "it holds a tensor that is not dense memory (sparse, quantized, negated or conjugated)"
            if x.device != inputs[0].device:
                return "its tensors are on several devices"
        return self._other_tensors(tensors)

    def other_form(self, inputs: Sequence[torch.Tensor]) -> str | None:
        """How inputs differ from the example's: of sizes, all have to be as in a set of shapes that was captured."""
        for index, (x, example) in enumerate(zip(inputs, self._examples, strict=True)):
            if x.dtype != example.dtype:
                return f"input {index} is {x.dtype}, not {example.dtype} as the example's"
            if x.dim() != example.dim():
                return f"input {index} has {x.dim()} dimensions, not {example.dim()} as the example's"
            if not x.is_contiguous() and x.stride() != example.stride():
                return f"input {index} has other strides than the example's"
        sizes = [x.shape for x in inputs]
        if sizes in self._sizes:
            return None
        index = next((at for at, x in enumerate(self._examples) if sizes[at] != x.shape), 0)
        return f"input {index} is {tuple(sizes[index])}, and the version says nothing of other sizes than were captured"

    def _other_tensors(self, tensors: Sequence[torch.Tensor]) -> str | None:
        for x, (shape, dtype, strides) in zip(tensors, self._tensors, strict=True):
            if x.dtype != dtype:
                return f"a tensor of the module is {x.dtype}, not {dtype} as at capture"
            if x.shape != shape:
                return "a tensor of the module has another shape than at capture"
            if x.stride() != strides:
                return "a tensor of the module has other strides than at capture"
        return None

    def overlap(self, inputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
        """Whether a tensor that a call changes shares memory with another one of the call."""
        pointers = [x.untyped_storage().data_ptr() for x in (*inputs, *tensors)]
        return any(pointers.count(pointers[index]) > 1 for index in self.mutated if pointers[index])

    def changed(self, inputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Those of the tensors that a call changes."""
        return [(*inputs, *tensors)[index] for index in self.mutated]
