"""What a recipe's printed reference tells without values: its sizes at all sets of shapes, and the tensors it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.dropin.loaded import Instance, load_source
from mtmc.dropin.recipe import Recipe
from mtmc.errors import TaskError
from mtmc.evaluate.reference.reaching import mutated
from mtmc.task import Variant, apply_constants
from mtmc.task.tensors import storage_key

_META = torch.device("meta")


def draw_inputs(recipe: Recipe, variant: Variant, device: torch.device) -> list[torch.Tensor]:
    """Inputs at one set of shapes. Raises: TaskError if they cannot be drawn."""
    text = apply_constants(recipe.task.source, variant.constants)
    try:
        with torch.device(device):
            return list(getattr(load_source(text), variant.inputs)())
    except Exception as error:
        raise TaskError(f"inputs of {recipe.task.name} at {variant.label} cannot be drawn: {error}") from error


def captured_sizes(recipe: Recipe) -> list[list[torch.Size]]:
    """The inputs' sizes of each set of shapes that the task has, the example's first."""
    examples = [tensor.shape for tensor in recipe.call.tensors]
    variants = (recipe.task.small, *recipe.task.held_out)
    return [examples, *([x.shape for x in draw_inputs(recipe, variant, _META)] for variant in variants)]


def changed_by_reference(recipe: Recipe) -> tuple[int, ...]:
    """Which of the tensors (the inputs, then the module's) forward changes in place, found without values."""
    task = recipe.task
    model = Instance(task.source, "Model", list(recipe.places), recipe.constants, _META)
    inputs = draw_inputs(recipe, task.full, _META)
    tensors = model.own_tensors()
    flat: Sequence[torch.Tensor] = (*inputs, *tensors)
    with torch.no_grad(), _Writes() as writes:
        model.run(inputs, tensors)
    return tuple(index for index, tensor in enumerate(flat) if storage_key(tensor) in writes.storages)


class _Writes(TorchDispatchMode):
    """The storages that ops write to."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.storages |= {storage_key(tensor) for tensor in mutated(func._schema, args, kwargs or {})}
        return func(*args, **(kwargs or {}))
