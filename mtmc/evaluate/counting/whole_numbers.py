"""Whole numbers of a draw as they are at the full shapes: loops end at what is loaded of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.errors import TaskError
from mtmc.evaluate.counting.redrawn import draw_redrawn
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
LARGE, MOST_WHOLE = 1 << 20, 1 << 23
"""Numbers in a floating tensor that is not drawn, and in one of integers that is not kept."""


class _Spared(TorchDispatchMode):
    """Does not draw large floating tensors: zeros that take no memory stand for them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        base = str(func._schema.name).rpartition("::")[2]
        if base in ("randn", "rand", "normal", "zeros", "ones", "full", "empty") and not flat_tensors(args):
            made = func(*args, **{**(kwargs or {}), "device": "meta"})
            if made.is_floating_point() and made.numel() > LARGE:
                return torch.zeros((), dtype=made.dtype).expand(made.shape)
        return func(*args, **(kwargs or {}))


def with_whole_numbers(task: Task, drawn: list[torch.Tensor], seed: int) -> tuple[list[torch.Tensor], str]:
    """Tensors of a small draw, with those of integers as they are at the full shapes: lengths, offsets, tables of pages.

    Loops end at what is loaded of them, so those of small shapes have programs do next to nothing. Where they cannot be
    drawn without all else, or are too many, the small ones stay.
    Returns: the tensors, and what integers are small ones and why, the same on every machine; "" where none is.
    """
    if not any(each.dtype in _INTEGERS for each in drawn):
        return drawn, ""
    told = "work that hangs on integers of the inputs is counted with those of the small shapes: "
    try:
        with _Spared():
            full = flat_tensors(draw_redrawn(task, task.full, seed, ()))
    except (TaskError, RuntimeError, MemoryError) as error:
        memory = out_of_memory(error) or (error.__cause__ is not None and out_of_memory(error.__cause__))
        why = "takes more than evaluator.memory_mib" if memory else f"fails: {error}"
        return drawn, f"{told}to draw the full ones {why}"[:500]
    if len(full) != len(drawn):
        return drawn, f"{told}the full shapes have another number of inputs"
    wanted = [each.dtype in _INTEGERS and each.numel() <= MOST_WHOLE for each in full]
    left = any(each.dtype in _INTEGERS and not whole for each, whole in zip(full, wanted, strict=True))
    found = [large if whole else small for large, small, whole in zip(full, drawn, wanted, strict=True)]
    return found, f"{told}the full ones are more than {MOST_WHOLE}" if left else ""
