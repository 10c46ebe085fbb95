"""A small draw of a task that stands for its full one: shapes along which the reference treats every row alike.

A softmax of 16384 rows is that of 5 rows, each of them repeated. So with inputs that repeat the rows of a small draw, in
an order that is drawn in secret, the whole expected output at the full shapes is known from a reference that runs in
milliseconds, and any element that a version writes there can be compared. An axis is found by trial: a constant of the
task's file that gives one dimension of some inputs and outputs its size; that rows do not mix along it is tried on the
reference itself, at its small shapes, by repeating rows. Without such an axis there is no tiling.
"""

from __future__ import annotations

import array
import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.evaluate.counting.axes import MOST_OUTPUTS, Tiled, Tiling, output_tensors, same_up_to_rounding, tiling_of
from mtmc.evaluate.counting.redrawn import draw_redrawn, drawn_alike
from mtmc.evaluate.counting.whole import MOST_AS_IT_IS, whole_shapes
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    import torch

    from mtmc.evaluate.reference.reference import Reference

HARD = ("late", "early")
NEAR_MOST = 0.05
"""Norm-wise error above which a result says nothing."""
UNTOLD = 1e9


@dataclass(frozen=True)
class Tiles:
    """A tiling and what the reference makes of the small draw. values: of each output, float32 as base64.

    near: for each output the norm-wise error that numbers of its type may have, as far as float64 tells; () where it was not
    asked, `UNTOLD` where it does not tell.
    """

    tiling: Tiling
    values: tuple[str, ...]
    near: tuple[float, ...] = ()

    def expected(self) -> list[array.array[float]]:
        """The values of each output."""
        found = []
        for text in self.values:
            found.append(array.array("f"))
            found[-1].frombytes(base64.b64decode(text))
        return found


def tiles(task: Task, seed: int) -> Tiles | str:
    """The small draw of a task, or the full one where none stands for it, and what comes of it; or why there is neither.

    seed: of the draw. Raises: TaskError if the reference fails at shapes that it is made for.
    """
    tiling = tiling_of(task, seed) or _as_it_is(task, seed)
    if isinstance(tiling, str):
        return f"no small draw stands for the full one, which is too large to run ({tiling})"
    alike = drawn_alike(task, tiling.variant, seed)
    with _may_decline():
        made = _made(task, replace(tiling, alike=alike)) if any(alike) else None
        if isinstance(made, Tiles):
            return made
    try:
        return _made(task, tiling)
    except (MemoryError, RuntimeError):
        if tiling.sizes:
            raise
        return "no small draw stands for the full one, which takes more memory to run than its largest tensors say"


def tiles_that_stand_out(task: Task, tiling: Tiling, seed: int) -> tuple[Tiles, ...]:
    """What comes of the same tiling with inputs of which a part counts alone, behind some place and before one: what a
    version does only where a first look finds something is asked for there. None of those that tell nothing.

    seed: of the draws.
    """
    found: list[Tiles] = []
    for distribution in HARD if tiling.sizes else ():
        with _may_decline():
            made = _made(task, replace(tiling, seed=seed, distribution=distribution))
            found += [made] if isinstance(made, Tiles) else []
    return tuple(found)


@contextlib.contextmanager
def _may_decline() -> Iterator[None]:
    """Values other than a task's own may be none that its reference is made for. That memory is short says nothing of it."""
    try:
        yield
    except TaskError as error:
        if out_of_memory(error):
            raise


def _as_it_is(task: Task, seed: int) -> Tiling | str:
    """The full draw as a tiling without an axis, where the reference is small enough; else what is too large."""
    shapes = whole_shapes(replace(task, state=None))
    if isinstance(shapes, str):
        return shapes
    inputs, outputs = (tuple(Tiled(shape, (-1,) * len(shape)) for shape in each) for each in shapes)
    return Tiling(task.full, seed, (), inputs, outputs)


def _made(task: Task, tiling: Tiling) -> Tiles | str:
    """What the reference makes of a draw; or why that is nothing to compare with.

    Raises: TaskError if it fails."""
    from mtmc.evaluate.reference.effects import kept_tensors
    from mtmc.evaluate.reference.reference import Reference
    from mtmc.task.quantized import readable

    reference, seed = Reference(task, tiling.variant, Path.cwd(), 0), tiling.seed
    inputs = draw_redrawn(task, tiling.variant, seed, tiling.alike, tiling.distribution)
    before = [tensor.clone() for tensor in flat_tensors(inputs)]
    kept = {path: tensor.clone() for path, tensor in kept_tensors(reference.model).items()}
    outputs = output_tensors(reference.run(inputs, seed))
    now = kept_tensors(reference.model)
    same = all(same_up_to_rounding(a, b) for a, b in zip(flat_tensors(inputs), before, strict=True))
    if not same or any(not same_up_to_rounding(now[path], tensor) for path, tensor in kept.items()):
        return "the reference changes its inputs or what it keeps, and makes something else of them in another call"
    most, made = MOST_OUTPUTS if tiling.sizes else MOST_AS_IT_IS, sum(tensor.numel() for tensor in outputs)
    if made > most or any(tensor.is_complex() for tensor in outputs):
        return f"{made} numbers in outputs, of at most {most}" if made > most else "an output is complex"
    own = tiling.alike or tiling.distribution != "drawn"
    if own and not all(bool(readable(tensor).isfinite().all()) for tensor in outputs):
        return "its result is not finite"  # though that of the task's own draw would be
    values = tuple(base64.b64encode(_bytes(tensor)).decode() for tensor in outputs)
    near = _near(reference, tiling, inputs) if tiling.sizes else ()
    if tiling.distribution != "drawn" and any(
        limit > NEAR_MOST for limit, tensor in zip(near, outputs, strict=True) if tensor.is_floating_point()
    ):
        return "its result is more noise than an answer"
    return Tiles(tiling, values, near)


def _near(reference: Reference, tiling: Tiling, inputs: Any) -> tuple[float, ...]:
    """See `Tiles`. inputs: of the small draw."""
    from mtmc.evaluate.reference.bounds import calibrated, error_bound
    from mtmc.evaluate.reference.expected_value import Expected

    found: list[float] = []
    for each in reference.beside(inputs, tiling.seed, tiling.distribution):  # type: ignore[arg-type]
        if isinstance(each, str):
            continue
        value = each.value
        if not isinstance(each, Expected) or not each.exact or not value.is_floating_point() or not value.numel():
            found.append(UNTOLD)
            continue
        known = calibrated(value, each.oracle, each.rounded, each.tolerance)
        found.append(error_bound(value.dtype, known.own, known.rounding, each.tolerance) + known.own)
    return tuple(found)


def _bytes(tensor: torch.Tensor) -> bytes:
    import torch

    return tensor.detach().to(torch.float32).contiguous().reshape(-1).numpy().tobytes()
