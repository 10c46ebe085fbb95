"""May this task be searched at all? Asked once for a task, before any candidate, on the trusted side.

Refused is a reference that nothing can be compared with: it raises, gives NaN, differs from run to run, or does not fit
into memory. Warned of is one that a kernel can answer without doing the work: its output is constant, or zero as far as
the task's tolerance shows, or the same whatever an input or the weights are. Where that goes for all of its outputs and
by every rule of the check, it is undecided (`mtmc.evaluate.reference.telling`): no version of it earns a reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError, TooLarge
from mtmc.evaluate.reference.blocks import block_size, blocks, same_bits
from mtmc.evaluate.reference.bounds import error_bound
from mtmc.evaluate.reference.calibrating import Calibration
from mtmc.evaluate.reference.compare import Precision, whose
from mtmc.evaluate.reference.distance import Limits, distance, in_steps, within_tolerance
from mtmc.evaluate.reference.effects import Effects, find, kept_tensors
from mtmc.evaluate.reference.memory import Footprint, Gauge, dense, estimate, free_bytes, in_units, release
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.returned import comparable, describe, flatten
from mtmc.evaluate.reference.telling import undecided
from mtmc.evaluate.reference.weaknesses import Weaknesses
from mtmc.task import Task, Variant
from mtmc.task.quantized import is_fp8, ordinals, readable
from mtmc.task.tensors import flat_tensors, held, map_tensors
from mtmc.task.tolerance import Tolerance

SEEDS = (11, 23)
"""Of weights and inputs, and of the others that they are compared with."""
FIXED_BYTES = 3 * 2**29
"""What two processes on a GPU take besides tensors of the task: their contexts, and the blocks of a comparison."""
KEPT_COPIES = 4
"""Of what a reference's model keeps and changes: as it was at first, in both processes, as expected, and as it is shared."""
SAME = 1e-6
"""Relative spread of an output's elements below which it is one value."""


@dataclass(frozen=True)
class Admission:
    """A task that may be searched.

    bytes_needed: of memory on the device, for the oracle's process and the candidate's together.
    warnings: sentences on what a kernel could leave out unnoticed. calibration: for every later `Reference` at the same
    shapes (`variant`). undecided: why no version of it can be told from one that does no work, "" where it can.
    """

    bytes_needed: int
    warnings: tuple[str, ...]
    calibration: Calibration
    variant: str
    undecided: str = ""

    @property
    def weaknesses(self) -> Weaknesses:
        """What is told of the task."""
        return Weaknesses(self.warnings, self.undecided, self.calibration.metrics)


def admit(task: Task, device: str, folder: Path) -> Admission:
    """Look a task's reference over: at its full shapes on a GPU, at its small ones on a CPU.

    device: "cpu", "cuda:0", ... folder: where the task's file is written to.
    Raises: TaskError, with the reason, for a reference that cannot be searched.
    """
    variant = task.small if torch.device(device).type == "cpu" else task.full
    where = f"task {task.name} at its {variant.label} shapes"
    reference, outputs, needed = _first_run(task, variant, device, folder, where)
    _refuse_not_a_number(outputs, where)
    calibration = reference.calibrate(SEEDS[0])
    needed += KEPT_COPIES * held([find(reference.model, path) for path in calibration.effects.state])
    _refuse_other_result(reference, outputs, calibration, where)
    warnings = (*_degenerate(outputs, reference.tolerance), *_blind(reference, outputs))
    del reference, outputs
    release(device)
    told = undecided(task, device, folder, SEEDS) if warnings else ""
    return Admission(needed, warnings, calibration, variant.label, told)


def bytes_needed(footprint: Footprint, device: str) -> int:
    """Memory of one evaluation: both processes hold the weights, and in turn the temporaries of a forward (each keeps
    them for later); the inputs are the oracle's and those that are shared; the outputs are the reference's, the
    candidate's, and those that are shared."""
    tensors = 2 * footprint.weights + 2 * footprint.inputs + 3 * footprint.outputs + 2 * footprint.temporaries
    return tensors + (FIXED_BYTES if torch.device(device).type == "cuda" else 0)


def _first_run(task: Task, variant: Variant, device: str, folder: Path, where: str) -> tuple[Reference, list[Any], int]:
    """The reference, the leaves of its result, and the bytes that an evaluation needs.

    What cannot fit is refused before it is allocated. Temporaries are left out of that: fake tensors take those of the
    plain implementation (of attention, say), and the run itself shows.
    Raises: TaskError if it fails or does not fit.
    """
    weighed = estimate(task, variant, folder)
    if weighed is not None:
        _require(replace(weighed, peak=0), device, where)
    gauge = Gauge(device)
    try:
        reference = Reference(task, variant, folder, SEEDS[0], device)
        inputs = reference.draw(SEEDS[0])
        outputs = _outputs(reference, SEEDS[0], inputs)
    except TaskError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError) and weighed is not None:
            raise _too_large(weighed, device, where) from error
        raise
    weights = [*reference.model.parameters(), *reference.model.buffers()]
    peak = gauge.peak([inputs, weights, outputs])
    if weighed is not None and torch.device(device).type == "cpu":
        peak = weighed.peak
    footprint = Footprint(held(inputs), held(weights), dense(outputs), peak)
    mine = held([inputs, weights, outputs])
    del inputs, weights
    return reference, outputs, _require(footprint, device, where, mine)


def _require(footprint: Footprint, device: str, where: str, mine: int = 0) -> int:
    """The bytes an evaluation needs, of which `mine` are allocated already. Raises: TooLarge if there are not as many."""
    needed = bytes_needed(footprint, device)
    if needed > free_bytes(device) + mine:
        raise _too_large(footprint, device, where)
    return needed


def _too_large(footprint: Footprint, device: str, where: str) -> TooLarge:
    kind = "GPU memory" if torch.device(device).type == "cuda" else "memory"
    return TooLarge(
        f"{where} needs about {in_units(bytes_needed(footprint, device))} of {kind} and "
        f"{in_units(free_bytes(device))} are free: inputs {in_units(footprint.inputs)}, weights "
        f"{in_units(footprint.weights)}, outputs {in_units(footprint.outputs)}, temporaries "
        f"{in_units(footprint.temporaries)}, in the copies that reference and candidate hold; use smaller sizes, or a "
        "device with more memory"
    )


def _outputs(reference: Reference, seed: int, inputs: list[Any], model: Any = None) -> list[Any]:
    """Leaves of the result of a model, from what it keeps at first; copies of those that a later call could change."""
    if model is None and reference.calibration is not None:  # before that it was not called
        reference.restart(reference.calibration.effects)
    outputs = flatten(reference.run(inputs, seed, model))[0]
    kept = kept_tensors(reference.model if model is None else model).values()
    memory = {tensor.untyped_storage()._cdata for tensor in kept}
    return [
        leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in memory else leaf
        for leaf in outputs
    ]


def _outputs_and_left(reference: Reference, seed: int, effects: Effects) -> list[Any]:
    """Leaves of the result, with copies of what is left behind after them, for the inputs of the first seed."""
    inputs = reference.draw(SEEDS[0])
    return [*_outputs(reference, seed, inputs), *reference.left(reference.model, inputs, effects)]


def _refuse_not_a_number(outputs: list[Any], where: str) -> None:
    """Raises: TaskError for a NaN, or an output without a finite element."""
    for at, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.numel():
            continue
        nan = torch.zeros((), dtype=torch.bool, device=output.device)
        finite = nan.clone()
        for index in blocks(output.shape, block_size(output)):
            nan |= torch.isnan(readable(output[index])).any()
            finite |= torch.isfinite(readable(output[index])).any()
        if bool(nan) or not bool(finite):
            what = "holds NaN" if bool(nan) else "is infinite throughout"
            raise TaskError(f"{where}: output {at} of the reference {what} on its own inputs: fix the task's inputs")


def _refuse_other_result(reference: Reference, outputs: list[Any], calibration: Calibration, where: str) -> None:
    """Run again on the same inputs, going on with other random numbers.

    Raises: TaskError if the result differs by more than sums in another order do.
    """
    if calibration.effects:  # what is left behind may differ too
        outputs = _outputs_and_left(reference, SEEDS[0], calibration.effects)
        again = _outputs_and_left(reference, SEEDS[1], calibration.effects)
    else:
        again = _outputs(reference, SEEDS[1], reference.draw(SEEDS[0]))
    reason = "dropout in training mode, random numbers in forward, or a state that it keeps from call to call"
    hint = f"a version could not be compared with it: make it deterministic ({reason})"
    if len(again) != len(outputs):
        raise TaskError(f"{where}: two runs of the reference give {len(outputs)} and {len(again)} outputs; {hint}")
    for at, (one, other, precision) in enumerate(zip(outputs, again, calibration.precisions, strict=True)):
        found = _unlike(one, other, precision, reference.tolerance)
        if found is not None:
            raise TaskError(
                f"{where}: output {at} of the reference {found} between two runs on the same inputs; {hint}"
            )


def _unlike(one: Any, other: Any, precision: Precision | None, tolerance: Tolerance) -> str | None:
    """How two results for the same inputs differ by more than rounding, None if they do not."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        if not comparable(one):
            return f"is {describe(one)}"
        return None if describe(one) == describe(other) else "differs"
    if one.shape != other.shape or one.dtype != other.dtype:
        return "changes its shape or dtype"
    if not one.numel() or not one.is_floating_point() or is_fp8(one.dtype):
        return None if within_tolerance(one, other, tolerance) else "differs"
    limits = Limits.of(one.dtype, tolerance)
    found = distance(other, one, limits.relative)
    # No slack here: that is measured with other random numbers, where there are any, and would let them pass.
    bound = (
        max(limits.absolute, limits.relative)
        if precision is None
        else error_bound(one.dtype, precision.own, precision.rounding, tolerance)
    )
    if found.error <= bound and found.excess <= limits.absolute:
        return None
    return f"differs by {found.error:.2e} (norm-wise; {bound:.2e} is rounding, at most {found.largest:.2e})"


def _degenerate(outputs: list[Any], tolerance: Tolerance) -> Iterator[str]:
    """Warnings on outputs that say little whatever they depend on."""
    for at, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor) or output.is_complex() or not output.numel():
            continue
        ends = [
            torch.stack(torch.aminmax(readable(output[index]))) for index in blocks(output.shape, block_size(output))
        ]
        table = torch.stack(ends).double()
        low, high = float(table.amin()), float(table.amax())
        largest, limits = max(abs(low), abs(high)), Limits.of(output.dtype, tolerance)
        if not math.isfinite(largest):
            continue
        if output.numel() > 1 and high - low <= SAME * largest:
            yield f"output {at} is {high:.6g} throughout: any kernel that writes this value passes there"
        elif not in_steps(output.dtype) and largest <= limits.absolute + limits.relative * largest:
            yield (
                f"output {at} is zero within {whose(tolerance)} tolerance (at most {largest:.2e}, tolerance "
                f"{limits.absolute:g} + {limits.relative:g} |reference|): there a kernel that writes zeros is stopped only "
                "where float64 stands behind the reference"
            )
        elif in_steps(output.dtype) and limits.steps and _spread(output) <= 2 * limits.steps:
            yield (
                f"output {at} is one value within the {limits.steps} steps that the task allows ({low:g} to {high:g}): "
                "any kernel that writes a value between them passes there"
            )


def _spread(output: torch.Tensor) -> int:
    """Steps from the least to the largest element of an output that is compared by them."""
    places = [torch.stack(torch.aminmax(ordinals(output[at]))) for at in blocks(output.shape, block_size(output))]
    table = torch.stack(places)
    return int(table.amax()) - int(table.amin())


def _blind(reference: Reference, outputs: list[Any]) -> Iterator[str]:
    """Warnings on outputs that stay the same when an input, all inputs, or the weights are others."""
    fixed = _fixed_inputs(reference)
    for position, same in enumerate(fixed):
        if same:
            yield f"input {position} is the same in every draw: any kernel may take its values as known"
    everything = _unchanged(reference, outputs, set(range(len(fixed)))) if fixed else []
    for at in everything:
        yield f"output {at} stays the same when all inputs are drawn anew: any kernel that repeats it passes there"
    for position, same in enumerate(fixed if len(fixed) > 1 else []):
        for at in [] if same else _unchanged(reference, outputs, {position}):
            if at not in everything:
                yield (
                    f"output {at} stays the same when input {position} alone is drawn anew: "
                    "any kernel may leave that input out there"
                )
    if any(parameter.is_floating_point() for parameter in reference.model.parameters()):
        for at in _unchanged(reference, outputs, set(), reference.other_model(SEEDS[1])):
            yield f"output {at} stays the same with other weights: any kernel may leave the weights out there"


def _fixed_inputs(reference: Reference) -> list[bool]:
    """For each tensor among the inputs whether it is the same whatever the seed."""
    pairs = zip(flat_tensors(reference.draw(SEEDS[0])), flat_tensors(reference.draw(SEEDS[1])), strict=False)
    return [a.shape == b.shape and a.dtype == b.dtype and bool(same_bits(a, b)) for a, b in pairs]


def _unchanged(reference: Reference, outputs: list[Any], redrawn: set[int], model: Any = None) -> list[int]:
    """Positions of the outputs that the task's tolerance cannot tell from those that the inputs give with the
    tensors `redrawn` among them drawn anew, or with `model`. None of them if the reference does not take such inputs."""
    try:
        inputs = reference.draw(SEEDS[0])
        if redrawn:
            fresh = enumerate(flat_tensors(reference.draw(SEEDS[1])))
            inputs = map_tensors(inputs, lambda tensor: _one_of(tensor, *next(fresh), redrawn))
        found = _outputs(reference, SEEDS[0], inputs, model)
    except TooLarge:  # what is unknown for want of memory is not unlike
        raise
    except TaskError:
        return []
    pairs = enumerate(zip(outputs, found, strict=False))
    same = lambda a, b: a.numel() > 0 and within_tolerance(b, a, reference.tolerance)  # noqa: E731
    return [at for at, (a, b) in pairs if isinstance(a, torch.Tensor) and same(a, b)]


def _one_of(tensor: torch.Tensor, position: int, fresh: torch.Tensor, redrawn: set[int]) -> torch.Tensor:
    return fresh if position in redrawn else tensor
