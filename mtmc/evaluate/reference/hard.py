"""A reference on inputs that stand out, at shapes where an oracle for every call would take too long.

Calls at the full shapes are checked on such inputs too, among those that are timed, so that what is right for the task's own
inputs alone is seen where it counts. What float64 says of them is asked once, as for the task's own inputs, and allowed
`SPREAD` times: which elements stand out is another matter in each draw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.reference.calibrating import Calibration, WideReference, calibrate
from mtmc.evaluate.reference.compare import Precision
from mtmc.evaluate.reference.distributions import Distribution
from mtmc.evaluate.reference.effects import Effects
from mtmc.task.quantized import readable

HARD: Distribution = "spiky"
SPREAD = 2.0
TELLS = 0.02
"""Norm-wise error of the reference, or of rounding alone, above which a result is more noise than an answer: no honest
kernel is held to it."""


class DrawnOtherwise(WideReference, Protocol):
    """A reference that draws from other distributions as well."""

    def drawn(self, distribution: Distribution, seed: int) -> list[Any]:
        """Inputs from a distribution."""
        ...


def calibrate_hard(reference: DrawnOtherwise, seed: int, where: str) -> Calibration | None:
    """What float64 says of a reference on inputs that stand out; None where they tell nothing, or it refuses them.

    where: for messages.
    """
    try:
        found = calibrate(_Hard(reference), seed, f"{where}, {HARD} inputs")
    except (TaskError, torch.OutOfMemoryError):
        return None
    return None if found.effects or not tells(found) else loosened(found)


def tells(calibration: Calibration) -> bool:
    """Whether every floating output has a precision, and is more than noise of its own rounding."""
    known = [each for each in calibration.precisions if each is not None]
    return bool(known) and all(max(each.own, each.rounding) <= TELLS for each in known)


def loosened(calibration: Calibration) -> Calibration:
    """`SPREAD` times what it allows."""

    def wider(each: Precision | None) -> Precision | None:
        return each and Precision(SPREAD * each.own, SPREAD * each.rounding, SPREAD * each.slack)

    return replace(calibration, precisions=tuple(map(wider, calibration.precisions)))


class _Hard:
    """A reference that draws inputs that stand out, and refuses those of which its result is not finite."""

    def __init__(self, reference: DrawnOtherwise) -> None:
        self._reference = reference
        self.device, self.tolerance = reference.device, reference.tolerance
        self.construct, self.widened = reference.construct, reference.widened
        self.run_wide, self.rounded = reference.run_wide, reference.rounded

    def draw(self, seed: int) -> list[Any]:
        return self._reference.drawn(HARD, seed)

    def observed(self, model: Any, inputs: list[Any], seed: int) -> tuple[list[Any], Effects]:
        outputs, effects = self._reference.observed(model, inputs, seed)
        for output in outputs:
            floating = isinstance(output, torch.Tensor) and output.is_floating_point()
            if floating and not bool(readable(output).isfinite().all()):
                raise TaskError("what the reference makes of inputs that stand out is not finite")
        return outputs, effects
