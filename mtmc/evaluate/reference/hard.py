"""A reference on inputs that stand out, at shapes where an oracle for every call would take too long.

Calls at the full shapes are checked on such inputs too, among those that are timed, so that what is right for the task's own
inputs alone is seen where it counts. What float64 says of them is asked once, as for the task's own inputs, and allowed
`SPREAD` times, and so are KernelBench's relative limits: which elements stand out is another matter in each draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.reference.calibrating import Calibration, Library, calibrate, loosest
from mtmc.evaluate.reference.compare import Precision
from mtmc.evaluate.reference.distributions import Distribution
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.expected_value import FEW_TERMS
from mtmc.evaluate.reference.wide_reference import WideReference
from mtmc.task.quantized import readable

HARD: Distribution = "spiky"
LATE: Distribution = "late"
EARLY: Distribution = "early"
"""Every other call that is asked on inputs that stand out has them behind or before one place of each row alone, and nothing
that counts elsewhere: one that looks at a part of them first finds nothing there. All are as hard, but for running sums:
behind what stands out they add what is lost in it, one number after another."""
Hard: TypeAlias = Mapping[Distribution, Calibration]
"""What float64 says of a reference on such inputs, by what stands out in them."""
SPREAD = 2.0
TELLS = 0.02
"""Norm-wise error of the reference, or of rounding alone, above which a result is more noise than an answer: no honest
kernel is held to it."""


class DrawnOtherwise(WideReference, Protocol):
    """A reference that draws from other distributions as well."""

    def drawn(self, distribution: Distribution, seed: int) -> list[Any]:
        """Inputs from a distribution."""
        ...


def calibrate_hard(reference: DrawnOtherwise, seed: int, where: str, library: Library) -> Hard | None:
    """What float64 says of a reference on inputs that stand out; None where they tell nothing, or it refuses them.

    where: for messages. library: how it convolves, which hangs on no inputs.
    """
    found = _calibrated(reference, seed, where, HARD, library)
    if found is None:
        return None
    late = _calibrated(reference, seed, where, LATE, library)
    if late is None:
        return {HARD: found}
    both = replace(found, precisions=loosest(found.precisions, late.precisions))
    early = _calibrated(reference, seed, where, EARLY, library) if found.carried else both
    return {HARD: both, LATE: both, **({} if early is None else {EARLY: early})}


def hard_of(seed: int, known: Hard) -> Distribution:
    """What stands out in the inputs of a seed: on one side alone in every other one."""
    sides = [each for each in (LATE, EARLY) if each in known]
    kinds = (*(HARD,) * max(len(sides), 1), *sides)
    return kinds[((seed * 2654435761 & 0xFFFFFFFF) >> 16) % len(kinds)]


def _calibrated(
    reference: DrawnOtherwise, seed: int, where: str, distribution: Distribution, library: Library
) -> Calibration | None:
    try:
        found = calibrate(_Hard(reference, distribution), seed, f"{where}, {distribution} inputs", library)
    except (TaskError, torch.OutOfMemoryError):
        return None
    return None if found.effects or not tells(found) else loosened(found)


def tells(calibration: Calibration) -> bool:
    """Whether every floating output has a precision, and is more than noise of its own rounding."""
    known = [each for each in calibration.precisions if each is not None]
    return bool(known) and all(max(each.own, each.rounding) <= TELLS for each in known)


def loosened(calibration: Calibration) -> Calibration:
    """`SPREAD` times what it allows, and no less than `FEW_TERMS`. What an element may be off by is widened whether or not
    the one draw that was asked comes near the tolerance: another one has other elements that next to nothing is left of."""

    def wider(each: Precision | None) -> Precision | None:
        own = max(SPREAD * each.own, FEW_TERMS) if each else 0.0
        slack = SPREAD * max(each.slack, each.most) if each else 0.0
        return each and Precision(own, SPREAD * each.rounding, slack, SPREAD, peak=each.peak)

    return replace(calibration, precisions=tuple(map(wider, calibration.precisions)))


class _Hard:
    """A reference that draws inputs that stand out, and refuses those of which its result is not finite."""

    def __init__(self, reference: DrawnOtherwise, distribution: Distribution) -> None:
        self._reference, self._distribution = reference, distribution
        self.device, self.tolerance = reference.device, reference.tolerance
        self.construct, self.widened = reference.construct, reference.widened
        self.run_wide, self.rounded = reference.run_wide, reference.rounded

    def draw(self, seed: int) -> list[Any]:
        return self._reference.drawn(self._distribution, seed)

    def observed(self, model: Any, inputs: list[Any], seed: int) -> tuple[list[Any], Effects]:
        outputs, effects = self._reference.observed(model, inputs, seed)
        for output in outputs:
            floating = isinstance(output, torch.Tensor) and output.is_floating_point()
            if floating and not bool(readable(output).isfinite().all()):
                raise TaskError("what the reference makes of inputs that stand out is not finite")
        return outputs, effects
