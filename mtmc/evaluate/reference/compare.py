"""Is an output right? Shapes, types, special values, the task's tolerance, and precision against float64.

A candidate's output c passes beside the reference's output r and the float64 oracle's o if

1. it has r's shape and dtype and is a plain tensor;
2. it is finite where r and o are, and has r's infinities and NaN where o has them too;
3. |c - r| <= a + t |r| everywhere, a = t = 1e-4 (float32, float64) or 1e-2 (16 bits): KernelBench's tolerance. Integers
   and booleans equal r, fp8 is at most one representable number from it;
4. its norm-wise error e(c) = |c - o| / |o| is at most b = 4 max(e(r), e(p)), or the dtype's rounding floor. p is the
   float64 result for inputs and weights that are each moved by half a unit in the last place of their own dtype.

The floor has two parts. `FLOOR_EPS` epsilons of the output's dtype: 1 for 16-bit types, whose results are rounded once
from a wider accumulator (0.3 epsilon), 4 for float32, where sums accumulate in the type itself and an honest
reordering of one costs a few roundings more than the reference's. And e(p): where the result is a small difference of
large numbers (a mean of normalized values, say) even an exact algorithm cannot do better than what the rounding of its
inputs leaves, and the reference's own error, which may be small by luck, is no measure. Nor is it where a long row is
added up one number after another, which e(p) has a part for (`running_sums`). All of it lies far below what
computing in a lower precision costs: TF32 is off by 3e-4, the float32 floor is 5e-7. Where inputs stand out, e(r) is taken
for `FEW_TERMS` at least.

A task may have a tolerance of its own (`mtmc.task.tolerance`): a, t and the steps of integers and fp8 in rule 3. What it
declares to be near enough is precise enough: b is at least t then.

Rule 3 takes r for right. Where o shows that r itself (a convolution in TF32, say) or p comes within a factor of 4 of
breaking the tolerance, a result as precise as rule 4 asks for may break it: there it is widened by 4 times the largest
|r - o| or |p - o| (`slack`). Where the library may convolve in TF32, q is the float64 result of operands that are cut to it,
or rounded: `ALLOWED` times the larger |q - o| are added at each place, or times `USUAL_MOVES` root mean squares of it where
that is more, and as many e(q) are allowed in rule 4.

At full shapes an oracle for every output would take too long and too much memory (`Calibrated`): e(r), e(p) and the
slack are measured once for a task (with the largest |q - o|, if the reference did convolve in TF32; the slack of an output
that is much larger elsewhere, as of other weights under an exponential, is as much larger), and rule 4 becomes
|c - r| / |r| <= b + e(r). Who obeys rule 4 obeys this one, for |c - r| <= |c - o| + |o - r| <= (b + e(r)) |o|;
|r| stands for |o|, from which it differs by a factor of 1 +- e(r).

Gigabytes are compared a block at a time. While all is right that is a few kernels a block and one wait for the device
at the end; only what is wrong is gone through again, to say where and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from mtmc.evaluate.reference.blocks import Index, block_size, blocks
from mtmc.evaluate.reference.bounds import FACTOR, calibrated, error_bound
from mtmc.evaluate.reference.distance import Limits, apart, apart_in_steps, distance, in_steps, peak_of, vector_norm
from mtmc.evaluate.reference.expected_value import Calibrated, Expected, Mismatch, Precision
from mtmc.evaluate.reference.faults import Faults, Worst
from mtmc.evaluate.reference.tf32 import ALLOWED
from mtmc.outcome import LOW_PRECISION
from mtmc.task.quantized import is_fp8, readable
from mtmc.task.tolerance import Tolerance

__all__ = ["Calibrated", "Expected", "Mismatch", "Precision", "check_output", "whose"]

USUAL_MOVES = 4.0
"""Times the root mean square of what TF32 comes to: so much may stand at any place. In deep networks what is lost in the
first convolutions is noise to the last ones, and an element that two ways of losing leave where it is says nothing of the
next way: in an EfficientNet 26 of 31 versions were refused for a few of a thousand statistics (H200). Whoever computes in a
lower precision everywhere is stopped by the norm of all errors."""
SAFE_SCALE = 1e-6
"""Norm of an output above which squares that underflow in float32 are too few to matter."""


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
        return 0.0, _check_steps(name, got, want)
    if is_fp8(got.dtype):
        return _check_fp8(name, got, want)
    error = _error_if_right(got, want) if isinstance(want, Expected) else _error_if_near(got, want)
    if error is not None:
        return error, None
    special = _check_special(name, got, want)
    if special is not None:
        return math.inf, special
    return _check_values(name, got, want)


def _error_if_right(got: torch.Tensor, want: Expected) -> float | None:
    """e(c) if the output passes and everything is finite; None calls for a closer look."""
    limits, rows, usual = Limits.of(got.dtype, want.tolerance), [], _usual_move(want)
    for index in blocks(got.shape, block_size(got)):
        c, r = got[index].double(), want.value[index].double()
        o, p = want.oracle[index].double(), want.rounded[index].double()
        excess = (c - r).abs_().sub_(r.abs(), alpha=limits.relative)
        moved = torch.zeros_like(o) if want.moved is None else want.moved[index]
        if usual is not None:
            excess.sub_(torch.maximum(moved, usual), alpha=ALLOWED)
        rows.append(torch.stack([*(vector_norm(each) for each in (c - o, r - o, p - o, moved, o)), excess.amax()]))
    table = torch.stack(rows).cpu()
    return error_of_norms(want, vector_norm(table[:, :5], 0).tolist(), float(table[:, 5].amax()))


def error_of_norms(want: Expected, norms: Sequence[float], worst: float) -> float | None:
    """e(c) if the output passes and everything is finite. norms: of c - o, r - o, p - o, of what is moved, and of o.
    worst: the largest |c - r| less what is allowed beside the absolute tolerance."""
    if not all(map(math.isfinite, norms)) or not worst <= Limits.of(want.value.dtype, want.tolerance).absolute:
        return None
    error, own, rounding, cut = (norm / (norms[4] or 1.0) for norm in norms[:4])
    bound = error_bound(want.value.dtype, max(own, want.least), max(rounding, ALLOWED / FACTOR * cut), want.tolerance)
    return error if not want.exact or error <= bound else None


def _usual_move(want: Expected) -> torch.Tensor | None:
    """What TF32 may come to at any place, a number of float64; None where the library may not convolve in it."""
    if want.moved is None:
        return None
    moved = torch.where(torch.isfinite(want.moved), want.moved, 0.0)
    return USUAL_MOVES * moved.square().mean().sqrt()


def _error_if_near(got: torch.Tensor, want: Calibrated) -> float | None:
    """|c - r| / |r| if the output passes and everything is finite; None calls for a closer look."""
    return error_of_distance(got, want, *apart(got, want.value, sum_dtype(got)))


def error_of_distance(got: torch.Tensor, want: Calibrated, off_norm: float, scale: float, most: float) -> float | None:
    """|c - r| / |r| if the output passes and everything is finite. off_norm, scale, most: as of `apart`."""
    if not (math.isfinite(off_norm) and SAFE_SCALE < scale < math.inf):
        return None
    error, limits = off_norm / scale, Limits.of(got.dtype, want.tolerance)
    absolute, relative = limits.absolute, limits.relative
    if want.precision is not None:
        absolute = _absolute(absolute, want.precision, want.value, most)
        relative *= want.precision.spread
        if error > _near_bound(got.dtype, want.precision, want.tolerance):
            return None
    return error if most <= absolute or _keeps(got, want.value, absolute, relative, sum_dtype(got)) else None


def _absolute(absolute: float, known: Precision, value: torch.Tensor, most: float = math.inf) -> float:
    """The absolute part of rule 3, widened. most: no element is further off; the size of the output is not looked for where
    what was measured is enough for that."""
    enough = not known.slack or most <= absolute + known.slack
    return absolute + (known.slack if enough else known.slack_at(peak_of(value)))


def sum_dtype(tensor: torch.Tensor) -> torch.dtype:
    """What squares are summed in: a GPU adds them in a tree, so that float32 loses next to nothing, a CPU does not."""
    return torch.float64 if tensor.dtype == torch.float64 or tensor.device.type == "cpu" else torch.float32


def _keeps(got: torch.Tensor, value: torch.Tensor, absolute: float, relative: float, wide: torch.dtype) -> bool:
    """|c - r| <= `absolute` + `relative` |r| everywhere. All finite."""
    excesses = []
    for index in blocks(got.shape, block_size(got)):
        r = value[index].to(wide)
        excesses.append((got[index].to(wide) - r).abs_().sub_(r.abs(), alpha=relative).amax())
    return float(torch.stack(excesses).amax()) <= absolute


def _near_bound(dtype: torch.dtype, precision: Precision, tolerance: Tolerance) -> float:
    return error_bound(dtype, precision.own, precision.rounding, tolerance) + precision.own


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_steps(name: str, got: torch.Tensor, want: Expected | Calibrated) -> Mismatch | None:
    """Integers, booleans and fp8: within the task's steps. fp8: where reference and oracle are finite, or neither is."""
    steps = Limits.of(got.dtype, want.tolerance).steps if in_steps(got.dtype) else 0
    far = apart_in_steps if in_steps(got.dtype) else lambda c, r, _: c != r
    faults = Faults(got.shape)
    parts = [(index, far(c, r, steps) & _asked(r, o)) for index, c, r, o in _parts(got, want)]
    if not bool(torch.stack([wrong.any() for _, wrong in parts]).any()):
        return None
    for index, wrong in parts:
        faults.add(wrong, index)
    where = faults.first
    values = f"{got[where].item()} instead of {want.value[where].item()}"
    differ = "differ from the reference" if not steps else f"are more than {steps} steps from the reference"
    return Mismatch("WrongValues", f"{name}: {faults.share} {differ}; the first is at {list(where)}: {values}")


def _asked(r: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    """Where something is asked of a candidate: reference and oracle agree about what is finite."""
    return torch.isfinite(readable(r)) == torch.isfinite(readable(o))


def _check_fp8(name: str, got: torch.Tensor, want: Expected | Calibrated) -> tuple[float, Mismatch | None]:
    special = _check_special(name, got, want)
    if special is not None:
        return math.inf, special
    error, precision, bound = _precision(got, want)
    mismatch = _check_steps(name, got, want)
    if mismatch is None and error > bound:
        own = "" if precision is None else f", the reference's own {precision.own:.2e}"
        message = (
            f"{name} is within the steps that the task allows, but too many numbers are a step off: norm-wise error "
            f"{error:.2e}{own}, allowed {bound:.2e}; round to the nearest number, and once"
        )
        mismatch = Mismatch(LOW_PRECISION, message)
    return error, mismatch


def _parts(got: torch.Tensor, want: Expected | Calibrated) -> Iterator[tuple[Index, torch.Tensor, torch.Tensor, Any]]:
    """Index, c, r and o (r where there is no oracle) of each block."""
    for index in blocks(got.shape, block_size(got)):
        r = want.value[index]
        yield index, got[index], r, want.oracle[index] if isinstance(want, Expected) else r


def _check_special(name: str, got: torch.Tensor, want: Expected | Calibrated) -> Mismatch | None:
    """NaN and infinities. Where reference and oracle disagree about finiteness nothing is asked of the candidate."""
    nan, infinite, unlike = (Faults(got.shape) for _ in range(3))
    for index, *parts in _parts(got, want):
        c, r, o = map(readable, parts)
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
    limits = Limits.of(got.dtype, want.tolerance)
    absolute = limits.absolute if precision is None else _absolute(limits.absolute, precision, want.value)
    relative = limits.relative * (precision.spread if precision is not None else 1.0)
    wrong, worst = Faults(got.shape), Worst()
    usual = _usual_move(want) if isinstance(want, Expected) else None
    for index, c, r, o in _parts(got, want):
        finite = torch.isfinite(r) & torch.isfinite(o) & torch.isfinite(c)
        off = torch.where(finite, (c.double() - r.double()).abs_(), 0.0)
        off -= relative * torch.where(finite, r.double().abs_(), 0.0)
        if isinstance(want, Expected) and want.moved is not None and usual is not None:
            moved = torch.maximum(want.moved[index], usual)
            off -= ALLOWED * torch.where(finite & torch.isfinite(moved), moved, 0.0)
        wrong.add(off > absolute, index)
        worst.add(off, index)
    errors = f"norm-wise error {error:.2e}"
    errors += f", the reference's own {precision.own:.2e}" if precision is not None else ""
    if wrong.count:
        allowed = f"{absolute:g} + {relative:g} |reference|"
        if isinstance(want, Expected) and want.moved is not None:
            allowed += " and what TF32 comes to there"
        message = (
            f"{name}: {wrong.share} are off by more than {allowed}{wrong.box}; the worst is at {list(worst.place)}: "
            f"{got[worst.place].item():.6g} instead of {want.value[worst.place].item():.6g}; {errors}"
        )
        return error, Mismatch("WrongValues", message)
    if error > bound:
        message = (
            f"{name} is within {whose(want.tolerance)} tolerance but less precise than {_type(got)} can be: {errors}, "
            f"allowed {bound:.2e}; do not compute in a lower precision (for tl.dot on fp32 use input_precision='tf32x3')"
        )
        return error, Mismatch(LOW_PRECISION, message)
    return error, None


def _precision(got: torch.Tensor, want: Expected | Calibrated) -> tuple[float, Precision | None, float]:
    """Error of an output, the reference's precision where it is known, and the largest error that passes."""
    if isinstance(want, Calibrated):
        error = distance(got, want.value, 0.0).error
        known = want.precision
        return error, known, math.inf if known is None else _near_bound(got.dtype, known, want.tolerance)
    comparable = torch.isfinite(readable(want.value))
    error = distance(got, want.oracle, 0.0, comparable).error
    if not want.exact:
        return error, None, math.inf
    known = calibrated(want.value, want.oracle, want.rounded, want.tolerance, want.least)
    if want.moved is not None:
        cut = distance(want.oracle + want.moved, want.oracle, 0.0, comparable).error
        known = replace(known, rounding=max(known.rounding, ALLOWED / FACTOR * cut))
    return error, known, error_bound(got.dtype, known.own, known.rounding, want.tolerance)


def whose(tolerance: Tolerance) -> str:
    """Whose absolute and relative tolerance it is, for messages."""
    return "KernelBench's" if tolerance.atol is None and tolerance.rtol is None else "the task's"
