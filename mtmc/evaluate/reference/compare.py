"""Is an output right? Shapes, types, special values, KernelBench's tolerance, and precision against float64.

A candidate's output c passes beside the reference's output r and the float64 oracle's o if

1. it has r's shape and dtype and is a plain tensor;
2. it is finite where r and o are, and has r's infinities and NaN where o has them too;
3. |c - r| <= t + t |r| everywhere, t = 1e-4 (float32, float64) or 1e-2 (16 bits and less): KernelBench's tolerance;
   integers and booleans equal r;
4. its norm-wise error e(c) = |c - o| / |o| is at most b = 4 max(e(r), e(p)), or the dtype's rounding floor. p is the
   float64 result for inputs and weights that are each moved by half a unit in the last place of their own dtype.

The floor has two parts. `FLOOR_EPS` epsilons of the output's dtype: 1 for 16-bit types, whose results are rounded once
from a wider accumulator (0.3 epsilon), 4 for float32, where sums accumulate in the type itself and an honest
reordering of one costs a few roundings more than the reference's. And e(p): where the result is a small difference of
large numbers (a mean of normalized values, say) even an exact algorithm cannot do better than what the rounding of its
inputs leaves, and the reference's own error, which may be small by luck, is no measure. Both lie far below what
computing in a lower precision costs: TF32 is off by 3e-4, the float32 floor is 5e-7.

Rule 3 takes r for right. Where o shows that r itself (a convolution in TF32, say) or p comes within a factor of 4 of
breaking the tolerance, a result as precise as rule 4 asks for may break it: there it is widened by 4 times the largest
|r - o| or |p - o| (`slack`).

At full shapes an oracle for every output would take too long and too much memory (`Calibrated`): e(r), e(p) and the
slack are measured once for a task, and rule 4 becomes |c - r| / |r| <= b + e(r). Who obeys rule 4 obeys this one, for
|c - r| <= |c - o| + |o - r| <= (b + e(r)) |o|; |r| stands for |o|, from which it differs by a factor of 1 +- e(r).

Gigabytes are compared a block at a time. While all is right that is a few kernels a block and one wait for the device
at the end; only what is wrong is gone through again, to say where and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.evaluate.reference.blocks import Index, block_size, blocks
from mtmc.evaluate.reference.distance import Distance, apart, distance, tolerance, vector_norm
from mtmc.evaluate.reference.faults import Faults, Worst

FACTOR = 4.0
FLOOR_EPS = {torch.float64: 4.0, torch.float32: 4.0, torch.float16: 1.0, torch.bfloat16: 1.0}
SAFE_SCALE = 1e-6
"""Norm of an output above which squares that underflow in float32 are too few to matter."""


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong. kind: "Structure", "Shape", "DType", "NaN", "Infinity", "WrongValues", "LowPrecision"."""

    kind: str
    message: str


@dataclass(frozen=True)
class Expected:
    """What one output is measured by: the reference's own value, the oracle's, and the oracle's for rounded inputs.

    oracle and rounded are float64 (or equal to `value` for integers), of the shape of `value`.
    exact: whether the oracle is one. Where the reference cannot run in float64, the oracle is `value` and rule 4 is
    left out.
    """

    value: torch.Tensor
    oracle: torch.Tensor
    rounded: torch.Tensor
    exact: bool = True


@dataclass(frozen=True)
class Precision:
    """What float64 says of one output of a reference, measured once: e(r), e(p), and what widens rule 3."""

    own: float
    rounding: float
    slack: float = 0.0


@dataclass(frozen=True)
class Calibrated:
    """What one output at full shapes is measured by: the reference's own value, and its precision measured before.

    precision: None where the reference has no fp64 reference, or none that fits into memory: rule 4 is left out.
    """

    value: torch.Tensor
    precision: Precision | None

    @property
    def exact(self) -> bool:
        """Whether a float64 oracle stands behind the precision."""
        return self.precision is not None


def check_output(name: str, got: torch.Tensor, want: Expected | Calibrated) -> tuple[float, Mismatch | None]:
    """Norm-wise error of one output (0 for integers) and what is wrong with it. `name` is for the message.

    The error is e(c) beside an oracle, and |c - r| / |r| where there is none.
    """
    if got.shape != want.value.shape:
        return 0.0, Mismatch("Shape", f"{name} has shape {list(got.shape)}, the reference {list(want.value.shape)}")
    if got.dtype != want.value.dtype:
        return 0.0, Mismatch("DType", f"{name} has dtype {_type(got)}, the reference {_type(want.value)}")
    if got.numel() == 0:
        return 0.0, None
    if not got.dtype.is_floating_point:
        return 0.0, _check_exact(name, got, want.value)
    error = _error_if_right(got, want) if isinstance(want, Expected) else _error_if_near(got, want)
    if error is not None:
        return error, None
    special = _check_special(name, got, want)
    if special is not None:
        return math.inf, special
    return _check_values(name, got, want)


def error_bound(dtype: torch.dtype, reference_error: float, rounding_error: float) -> float:
    """Largest norm-wise error that passes, see the module's text.

    reference_error: e(r). rounding_error: e(p). All relative, without unit.
    """
    floor = FLOOR_EPS.get(dtype, 1.0) * torch.finfo(dtype).eps
    return max(FACTOR * reference_error, FACTOR * rounding_error, floor)


def slack(reference: Distance, rounded: Distance, limit: float) -> float:
    """What widens rule 3: 0 where even `FACTOR` times the errors of reference and rounded result keep the tolerance
    `limit` beside the oracle. Both distances: taken with the limit `limit / FACTOR`."""
    if max(reference.excess, rounded.excess) <= limit / FACTOR:
        return 0.0
    return FACTOR * max(reference.largest, rounded.largest)


def calibrated(value: torch.Tensor, oracle: torch.Tensor, rounded: torch.Tensor) -> Precision:
    """The precision of a reference's output, given the float64 results. All floating, of one shape."""
    limit = tolerance(value.dtype)
    own, rounding = (distance(each, oracle, limit / FACTOR) for each in (value, rounded))
    return Precision(own.error, rounding.error, slack(own, rounding, limit))


def _error_if_right(got: torch.Tensor, want: Expected) -> float | None:
    """e(c) if the output passes and everything is finite; None calls for a closer look."""
    limit = tolerance(got.dtype)
    rows = []
    for index in blocks(got.shape, block_size(got)):
        c, r = got[index].double(), want.value[index].double()
        o, p = want.oracle[index].double(), want.rounded[index].double()
        excess = (c - r).abs_().sub_(r.abs(), alpha=limit).amax()
        rows.append(torch.stack([vector_norm(c - o), vector_norm(r - o), vector_norm(p - o), vector_norm(o), excess]))
    table = torch.stack(rows).cpu()
    norms, worst = vector_norm(table[:, :4], 0).tolist(), float(table[:, 4].amax())
    if not all(map(math.isfinite, norms)) or not worst <= limit:
        return None
    error, own, rounding = (norm / (norms[3] or 1.0) for norm in norms[:3])
    return error if not want.exact or error <= error_bound(got.dtype, own, rounding) else None


def _error_if_near(got: torch.Tensor, want: Calibrated) -> float | None:
    """|c - r| / |r| if the output passes and everything is finite; None calls for a closer look."""
    wide = _sum_dtype(got)
    off_norm, scale, most = apart(got, want.value, wide)
    if not (math.isfinite(off_norm) and SAFE_SCALE < scale < math.inf):
        return None
    error, absolute = off_norm / scale, tolerance(got.dtype)
    if want.precision is not None:
        absolute += want.precision.slack
        if error > _near_bound(got.dtype, want.precision):
            return None
    return error if most <= absolute or _keeps_tolerance(got, want.value, absolute, wide) else None


def _sum_dtype(tensor: torch.Tensor) -> torch.dtype:
    """What squares are summed in: a GPU adds them in a tree, so that float32 loses next to nothing, a CPU does not."""
    return torch.float64 if tensor.dtype == torch.float64 or tensor.device.type == "cpu" else torch.float32


def _keeps_tolerance(got: torch.Tensor, value: torch.Tensor, absolute: float, wide: torch.dtype) -> bool:
    """|c - r| <= `absolute` + t |r| everywhere. All finite."""
    limit, excesses = tolerance(got.dtype), []
    for index in blocks(got.shape, block_size(got)):
        r = value[index].to(wide)
        excesses.append((got[index].to(wide) - r).abs_().sub_(r.abs(), alpha=limit).amax())
    return float(torch.stack(excesses).amax()) <= absolute


def _near_bound(dtype: torch.dtype, precision: Precision) -> float:
    return error_bound(dtype, precision.own, precision.rounding) + precision.own


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_exact(name: str, got: torch.Tensor, want: torch.Tensor) -> Mismatch | None:
    different = [(got[index] != want[index]).any() for index in blocks(got.shape, block_size(got))]
    if not bool(torch.stack(different).any()):
        return None
    faults = Faults(got.shape)
    for index in blocks(got.shape, block_size(got)):
        faults.add(got[index] != want[index], index)
    where = faults.first
    values = f"{got[where].item()} instead of {want[where].item()}"
    return Mismatch(
        "WrongValues", f"{name}: {faults.share} differ from the reference; the first is at {list(where)}: {values}"
    )


def _parts(got: torch.Tensor, want: Expected | Calibrated) -> Iterator[tuple[Index, torch.Tensor, torch.Tensor, Any]]:
    """Index, c, r and o (r where there is no oracle) of each block."""
    for index in blocks(got.shape, block_size(got)):
        r = want.value[index]
        yield index, got[index], r, want.oracle[index] if isinstance(want, Expected) else r


def _check_special(name: str, got: torch.Tensor, want: Expected | Calibrated) -> Mismatch | None:
    """NaN and infinities. Where reference and oracle disagree about finiteness nothing is asked of the candidate."""
    nan, infinite, unlike = (Faults(got.shape) for _ in range(3))
    for index, c, r, o in _parts(got, want):
        comparable, agreed = torch.isfinite(r) & torch.isfinite(o), ~torch.isfinite(r) & ~torch.isfinite(o)
        nan.add(comparable & torch.isnan(c), index)
        infinite.add(comparable & torch.isinf(c), index)
        unlike.add(agreed & ~((c == r) | (torch.isnan(c) & torch.isnan(r))), index)
    if nan.count:
        expected = want.value[nan.first].item()
        note = " (memory from torch.empty that is never written reads as NaN here)"
        message = f"{name}: {nan.share} are NaN; the first is at {list(nan.first)}, the reference has {expected:.6g}"
        return Mismatch("NaN", message + note)
    for faults in (infinite, unlike):
        if faults.count:
            where = faults.first
            values = f"{got[where].item()} instead of {want.value[where].item()}"
            return Mismatch("Infinity", f"{name}: {faults.share} differ; the first is at {list(where)}: {values}")
    return None


def _check_values(name: str, got: torch.Tensor, want: Expected | Calibrated) -> tuple[float, Mismatch | None]:
    error, precision, bound = _precision(got, want)
    limit = tolerance(got.dtype)
    wider = precision.slack if precision is not None else 0.0
    wrong, worst = Faults(got.shape), Worst()
    for index, c, r, o in _parts(got, want):
        finite = torch.isfinite(r) & torch.isfinite(o) & torch.isfinite(c)
        off = torch.where(finite, (c.double() - r.double()).abs_(), 0.0)
        off -= limit * torch.where(finite, r.double().abs_(), 0.0)
        wrong.add(off > limit + wider, index)
        worst.add(off, index)
    errors = f"norm-wise error {error:.2e}"
    errors += f", the reference's own {precision.own:.2e}" if precision is not None else ""
    if wrong.count:
        allowed = f"{limit + wider:g} + {limit:g} |reference|"
        message = (
            f"{name}: {wrong.share} are off by more than {allowed}{wrong.box}; the worst is at {list(worst.place)}: "
            f"{got[worst.place].item():.6g} instead of {want.value[worst.place].item():.6g}; {errors}"
        )
        return error, Mismatch("WrongValues", message)
    if error > bound:
        message = (
            f"{name} is within KernelBench's tolerance but less precise than {_type(got)} can be: {errors}, allowed "
            f"{bound:.2e}; do not compute in a lower precision (for tl.dot on fp32 use input_precision='tf32x3')"
        )
        return error, Mismatch("LowPrecision", message)
    return error, None


def _precision(got: torch.Tensor, want: Expected | Calibrated) -> tuple[float, Precision | None, float]:
    """Error of an output, the reference's precision where it is known, and the largest error that passes."""
    limit = tolerance(got.dtype)
    if isinstance(want, Calibrated):
        error = distance(got, want.value, limit).error
        known = want.precision
        return error, known, math.inf if known is None else _near_bound(got.dtype, known)
    comparable = torch.isfinite(want.value)
    error = distance(got, want.oracle, limit, comparable).error
    if not want.exact:
        return error, None, math.inf
    known = calibrated(want.value, want.oracle, want.rounded)
    return error, known, error_bound(got.dtype, known.own, known.rounding)
