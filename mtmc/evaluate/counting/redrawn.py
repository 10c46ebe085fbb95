"""Inputs for spot checks: as the task draws them, but for those that it draws alike with every seed.

A gate of zeros or a mask of ones would let a version leave out at the full shapes what they switch off in the example.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
