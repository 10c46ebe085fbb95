"""Inputs for spot checks: as the task draws them, but for those that it draws alike with every seed.

A gate of zeros or a mask of ones would let a version leave out at the full shapes what they switch off in the example.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.loading.modules import draw_inputs, load_reference
from mtmc.task import Task, Variant
from mtmc.task.tensors import flat_tensors


def drawn_alike(task: Task, variant: Variant, seed: int) -> tuple[bool, ...]:
    """Of each input tensor whether another seed gives the same one. Raises: TaskError."""
    from mtmc.evaluate.reference.blocks import same_bits

    module = load_reference(task, variant, Path.cwd())
    one, other = (flat_tensors(draw_inputs(module, variant, each, "cpu")) for each in (seed, seed + 1))
    return tuple(
        a.shape == b.shape and a.dtype == b.dtype and bool(same_bits(a, b)) for a, b in zip(one, other, strict=True)
    )


def draw_redrawn(
    task: Task, variant: Variant, seed: int, alike: Sequence[bool], distribution: str = "drawn"
) -> list[Any]:
    """The draw of a seed. alike: of each tensor whether it gets another value than the task draws; none for ().
    distribution: of the others.

    Raises: TaskError.
    """
    from mtmc.evaluate.reference.distributions import redistributed

    inputs = draw_inputs(load_reference(task, variant, Path.cwd()), variant, seed)
    if distribution != "drawn":
        return redistributed(inputs, distribution, seed, alike or None)  # type: ignore[arg-type]
    return redistributed(inputs, "redrawn", seed, alike) if any(alike) else inputs


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
LARGE, MOST_WHOLE = 1 << 20, 1 << 23
"""Numbers in a floating tensor that is not drawn, and in one of integers that is not kept."""


def with_whole_numbers(task: Task, drawn: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Tensors of a small draw, with those of integers as they are at the full shapes: lengths, offsets, tables of pages.

    Loops end at what is loaded of them, so those of small shapes have programs do next to nothing. Where they cannot be
    drawn without all else, the small ones stay.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Spared(TorchDispatchMode):
        """Does not draw large floating tensors: zeros that take no memory stand for them."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            base = str(func._schema.name).rpartition("::")[2]
            if base in ("randn", "rand", "normal", "zeros", "ones", "full", "empty") and not flat_tensors(args):
                made = func(*args, **{**(kwargs or {}), "device": "meta"})
                if made.is_floating_point() and made.numel() > LARGE:
                    return torch.zeros((), dtype=made.dtype).expand(made.shape)
            return func(*args, **(kwargs or {}))

    try:
        with Spared():
            full = flat_tensors(draw_redrawn(task, task.full, seed, ()))
    except (TaskError, RuntimeError, MemoryError):
        return drawn
    if len(full) != len(drawn):
        return drawn
    wanted = [each.dtype in _INTEGERS and each.numel() <= MOST_WHOLE for each in full]
    return [large if whole else small for large, small, whole in zip(full, drawn, wanted, strict=True)]
