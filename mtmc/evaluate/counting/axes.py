"""Axes along which the reference treats every row alike, see `mtmc.evaluate.counting.tiling`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.task import Task, Variant
from mtmc.task.constants import distinct_constants
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    import torch

ROWS = (5, 6, 8)
"""Rows of a small draw that are tried, in this order."""
LEAST = 8
"""Rows from which repeating them is worth it."""
MOST_FLOPS, MOST_ELEMENTS, MOST_OUTPUTS, MOST_WEIGHTS = 20e9, 8 << 20, 2 << 20, 16 << 20
"""Of a small draw: what the reference may compute, and numbers in inputs, outputs and weights."""
SEED = 5
_ALIKE = 1e-3


@dataclass(frozen=True)
class Tiled:
    """One tensor. shape: at the full shapes. axes: for each dimension the number of its axis, or -1."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """What a small draw says of the full one.

    variant: shapes of the small draw. seed: of the draw, a secret. sizes: (full, small) number of rows of each axis.
    inputs, outputs: their tensors, in order. alike: of each input whether the task draws it alike with every seed, and it
        has another value here; () where it has not.
    distribution: of the inputs.
    """

    variant: Variant
    seed: int
    sizes: tuple[tuple[int, int], ...]
    inputs: tuple[Tiled, ...]
    outputs: tuple[Tiled, ...]
    alike: tuple[bool, ...] = ()
    distribution: str = "drawn"


def tiling_of(task: Task, seed: int) -> Tiling | None:
    """The tiling of a task along all axes that are found; None where there is none, or its small draw is too large.

    seed: of the draw. Raises: TaskError if the reference fails at its small shapes.
    """
    bare = replace(task, state=None)
    full = _shapes(bare, task.full)
    if full is None:
        return None
    known = {**distinct_constants(task.source), **dict(task.full.constants)}
    best: Tiling | None = None
    for name, size in known.items():
        if size < LEAST or size not in {n for shape in full.inputs for n in shape}:
            continue
        for rows in ROWS:
            constants = dict(best.variant.constants if best else task.full.constants) | {name: rows}
            variant = replace(task.full, label="tiled", constants=tuple(constants.items()))
            sizes = (*(best.sizes if best else ()), (size, rows))
            found = _with_axis(bare, variant, full, sizes, best, seed)
            if found is not None and _rows_are_alike(bare, found):
                best = found
                break
    return best if best is not None and _is_small(bare, best.variant) else None


@dataclass(frozen=True)
class _Shapes:
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]
    arguments: list[Any]


def _shapes(task: Task, variant: Variant) -> _Shapes | None:
    """Shapes of a variant, from a forward without data; None where the reference needs data."""
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference

    try:
        with fake_tensors():
            reference = Reference(task, variant, Path.cwd(), SEED)
            inputs = reference.draw(SEED)
            outputs = output_tensors(reference.run(inputs, SEED))
    except (TaskError, RuntimeError):
        return None
    arguments = [value for value in reference.arguments if isinstance(value, bool | int | float | str)]
    return _Shapes([tuple(t.shape) for t in flat_tensors(inputs)], [tuple(t.shape) for t in outputs], arguments)


def _with_axis(
    task: Task, variant: Variant, full: _Shapes, sizes: tuple[tuple[int, int], ...], last: Tiling | None, seed: int
) -> Tiling | None:
    """The tiling with one more axis, the last of these sizes, or None where sizes change otherwise."""
    small = _shapes(task, variant)
    if small is None or small.arguments != full.arguments:
        return None
    counts = [(len(shapes.inputs), len(shapes.outputs)) for shapes in (full, small)]
    if counts[0] != counts[1]:
        return None
    tensors = []
    for index, (there, here) in enumerate(
        zip([*full.inputs, *full.outputs], [*small.inputs, *small.outputs], strict=True)
    ):
        before = [*last.inputs, *last.outputs][index].axes if last is not None else (-1,) * len(there)
        axes = _axes(there, here, sizes, before)
        if axes is None:
            return None
        tensors.append(Tiled(there, axes))
    count = len(full.inputs)
    new = len(sizes) - 1
    if not all(any(new in tensor.axes for tensor in part) for part in (tensors[:count], tensors[count:])):
        return None
    return Tiling(variant, seed, sizes, tuple(tensors[:count]), tuple(tensors[count:]))


def _axes(
    there: tuple[int, ...], here: tuple[int, ...], sizes: Sequence[tuple[int, int]], before: Sequence[int]
) -> tuple[int, ...] | None:
    """The axis of each dimension; None where one has another size than its axis gives it, or two have the new one."""
    if len(there) != len(here):
        return None
    axes = []
    for full, small, axis in zip(there, here, before, strict=True):
        axis = axis if axis >= 0 or full == small else len(sizes) - 1
        if (full, small) != (sizes[axis] if axis >= 0 else (full, full)):
            return None
        axes.append(axis)
    return tuple(axes) if axes.count(len(sizes) - 1) < 2 else None


def _rows_are_alike(task: Task, tiling: Tiling) -> bool:
    """Whether the reference makes of repeated rows the repeated rows of its result, at the small shapes."""
    import torch

    from mtmc.evaluate.reference.reference import Reference
    from mtmc.task.tensors import map_tensors

    reference = Reference(task, task.small, Path.cwd(), SEED)
    inputs = reference.draw(SEED)
    sizes: dict[int, int] = {}
    for tensor, tiled in zip(flat_tensors(inputs), tiling.inputs, strict=True):
        for dim, axis in enumerate(tiled.axes):
            if axis >= 0 and sizes.setdefault(axis, tensor.shape[dim]) != tensor.shape[dim]:
                return False
    generator = torch.Generator("cpu").manual_seed(SEED)
    orders = {axis: torch.randint(size, (size,), generator=generator) for axis, size in sizes.items()}
    each = iter(tiling.inputs)
    others = map_tensors(inputs, lambda tensor: _taken(tensor, next(each).axes, orders).clone())
    own = reference.run(map_tensors(inputs, lambda tensor: tensor.clone()), SEED)
    first = [tensor.clone() for tensor in output_tensors(own)]
    second = output_tensors(reference.run(others, SEED))
    if len(first) != len(tiling.outputs):
        return False
    return all(
        same_up_to_rounding(after, _taken(before, tiled.axes, orders))
        for before, after, tiled in zip(first, second, tiling.outputs, strict=True)
    )


def _taken(tensor: torch.Tensor, axes: Sequence[int], orders: dict[int, torch.Tensor]) -> torch.Tensor:
    for dim, axis in enumerate(axes):
        if axis >= 0:
            tensor = tensor.index_select(dim, orders[axis])
    return tensor


def _is_small(task: Task, variant: Variant) -> bool:
    """Whether the reference can be run at these shapes in a second or so."""
    from mtmc.evaluate.counting.forward import count_forward
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference

    with fake_tensors():
        reference = Reference(task, variant, Path.cwd(), SEED)
        inputs = reference.draw(SEED)
        records, _, _ = count_forward(reference.model, inputs)
    kept = (*reference.model.parameters(), *reference.model.buffers())
    weights, drawn = sum(tensor.numel() for tensor in kept), sum(tensor.numel() for tensor in flat_tensors(inputs))
    flops = sum(record["flops"] for record in records)
    return bool(flops <= MOST_FLOPS and weights <= MOST_WEIGHTS and drawn <= MOST_ELEMENTS)


def same_up_to_rounding(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same up to rounding."""
    if a.shape != b.shape:
        return False
    a, b = a.detach().double().nan_to_num(), b.detach().double().nan_to_num()
    return bool((a - b).norm() <= _ALIKE * b.norm() + 1e-12)


def output_tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a forward's result, in the order in which outputs are compared."""
    from mtmc.evaluate.reference.returned import flatten

    return flat_tensors(flatten(result)[0])
