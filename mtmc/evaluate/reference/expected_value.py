"""What one output of a candidate is measured by. The rules that it has to keep are in `mtmc.evaluate.reference.compare`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mtmc.task.tolerance import DEFAULT, Tolerance

FEW_TERMS = 2.0**-22
"""Norm-wise error that a reference of float32 numbers has at least where few terms of a sum count, as of inputs that stand
out. A product in float32 has hardly any there, and one in three TF32 pieces has most: up to 8.0e-7 on an H100 (depths of 65
to 4096), where pieces are cut off, 3.6e-7 on usual inputs."""


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong. kind: "Structure", "Shape", "DType", "NaN", "Infinity", "WrongValues", "LowPrecision"."""

    kind: str
    message: str


@dataclass(frozen=True)
class Expected:
    """What one output is measured by: the reference's own value, the oracle's, and the oracle's for rounded inputs.

    oracle and rounded are float64 (fp8 for fp8, equal to `value` for integers), of the shape of `value`.
    tolerance: the task's. exact: whether the oracle is one. Where the reference cannot run in float64, the oracle is `value`
    and rule 4 is left out. least: what e(r) is taken for at least, see `FEW_TERMS`. moved: float64, by how much
    the oracle moves at each place where convolutions have operands in TF32, None where the library may not.
    """

    value: torch.Tensor
    oracle: torch.Tensor
    rounded: torch.Tensor
    exact: bool = True
    tolerance: Tolerance = DEFAULT
    least: float = 0.0
    moved: torch.Tensor | None = None


LARGER = 4.0
"""See `Precision.slack_at`."""


@dataclass(frozen=True)
class Precision:
    """What float64 says of one output of a reference, measured once: e(r), e(p), and what widens rule 3: its absolute part
    by `slack`, its relative one `spread` times. most: what `slack` would be if the reference came near the tolerance.
    peak: the largest size of a number of that output, 0 where none was looked for."""

    own: float
    rounding: float
    slack: float = 0.0
    spread: float = 1.0
    most: float = 0.0
    peak: float = 0.0

    def slack_at(self, peak: float) -> float:
        """What widens the absolute part of rule 3 for an output whose numbers are as large as `peak`: more where they are
        more than `LARGER` times those that were measured, as roundings are a share of what is rounded. Other draws of the
        same numbers make less of a difference, for which no low precision is to pass."""
        grown = peak / self.peak if self.peak else 1.0
        return self.slack * (grown if grown > LARGER else 1.0)


@dataclass(frozen=True)
class Calibrated:
    """What one output at full shapes is measured by: the reference's own value, and its precision measured before.

    precision: None where the reference has no fp64 reference, or none that fits into memory: rule 4 is left out.
    tolerance: the task's.
    """

    value: torch.Tensor
    precision: Precision | None
    tolerance: Tolerance = DEFAULT

    @property
    def exact(self) -> bool:
        """Whether a float64 oracle stands behind the precision."""
        return self.precision is not None
