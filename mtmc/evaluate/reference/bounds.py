"""How precise an output has to be, see rules 3 and 4 of `mtmc.evaluate.reference.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mtmc.evaluate.reference.distance import Distance, Limits, distance, distances, peak_of, peaks_of
from mtmc.evaluate.reference.expected_value import Precision
from mtmc.evaluate.reference.tf32 import ALLOWED
from mtmc.task.quantized import is_fp8
from mtmc.task.tolerance import DEFAULT, Tolerance

FACTOR = 4.0
FLOOR_EPS = {torch.float64: 4.0, torch.float32: 4.0, torch.float16: 1.0, torch.bfloat16: 1.0}
FP8_FLOOR_EPS = 0.25
"""Of fp8, where the oracle is rounded too: a tenth of the numbers a step off, as roundings of sums in another order fall;
cutting off instead of rounding puts half of them there."""


def error_bound(
    dtype: torch.dtype, reference_error: float, rounding_error: float, tolerance: Tolerance = DEFAULT
) -> float:
    """Largest norm-wise error that passes, see `mtmc.evaluate.reference.compare`.

    reference_error: e(r). rounding_error: e(p). All relative, without unit.
    """
    eps = torch.finfo(dtype).eps
    floor = (FP8_FLOOR_EPS if is_fp8(dtype) else FLOOR_EPS.get(dtype, 1.0)) * eps
    near_enough = tolerance.error
    if is_fp8(dtype) and tolerance.steps is not None:
        near_enough = max(near_enough, tolerance.steps * eps)
    return max(FACTOR * reference_error, FACTOR * rounding_error, floor, near_enough)


def slack(reference: Distance, rounded: Distance, absolute: float) -> float:
    """What widens rule 3: 0 where even `FACTOR` times the errors of reference and rounded result keep the tolerance
    beside the oracle. Both distances: taken with the relative tolerance divided by `FACTOR`."""
    if max(reference.excess, rounded.excess) <= absolute / FACTOR:
        return 0.0
    return FACTOR * max(reference.largest, rounded.largest)


def calibrated(
    value: torch.Tensor, oracle: torch.Tensor, rounded: torch.Tensor, tolerance: Tolerance = DEFAULT, least: float = 0.0
) -> Precision:
    """The precision of a reference's output, given the float64 results. All floating, of one shape.
    least: see `Expected`."""
    limits = Limits.of(value.dtype, tolerance)
    own, rounding = (distance(each, oracle, limits.relative / FACTOR) for each in (value, rounded))
    if least:
        own = own.at_least(least)
    return _precision(value.dtype, own, rounding, limits, 0.0 if is_fp8(value.dtype) else peak_of(value))


Leaf = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""An output of the reference, and the float64 results of inputs and of rounded inputs."""


def all_calibrated(leaves: Sequence[Leaf], tolerance: Tolerance = DEFAULT) -> list[Precision]:
    """`calibrated` of each output; the small ones together."""
    found = dict[int, Precision]()
    for dtype in dict.fromkeys(value.dtype for value, _, _ in leaves):
        chosen = [at for at, (value, _, _) in enumerate(leaves) if value.dtype == dtype]
        limits, values = Limits.of(dtype, tolerance), [leaves[at][0] for at in chosen]
        columns = zip(*(((v, o), (p, o)) for v, o, p in (leaves[at] for at in chosen)), strict=True)
        own, rounding = (distances(column, limits.relative / FACTOR) for column in columns)
        peaks = [0.0] * len(chosen) if is_fp8(dtype) else peaks_of(values)
        for at, one, other, peak in zip(chosen, own, rounding, peaks, strict=True):
            found[at] = _precision(dtype, one, other, limits, peak)
    return [found[at] for at in range(len(leaves))]


def _precision(dtype: torch.dtype, own: Distance, rounding: Distance, limits: Limits, peak: float) -> Precision:
    if is_fp8(dtype):
        return Precision(own.error, rounding.error)
    wider, most = slack(own, rounding, limits.absolute), FACTOR * max(own.largest, rounding.largest)
    return Precision(own.error, rounding.error, wider, most=most, peak=peak)


def with_cut(known: Precision, cut: Distance, absolute: float) -> Precision:
    """A precision whose slack is what operands cut to TF32 come to. cut: of q from o, taken as for `slack`."""
    return known if cut.excess <= absolute / FACTOR else replace(known, slack=max(known.slack, ALLOWED * cut.largest))
