"""Is an output right? Shapes, types, special values, KernelBench's tolerance, and precision against float64.

A candidate's output c passes beside the reference's output r and the float64 oracle's o if

1. it has r's shape and dtype and is a plain tensor;
2. it is finite where r and o are, and has r's infinities and NaN where o has them too;
3. |c - r| <= t + t |r| everywhere, t = 1e-4 (float32, float64) or 1e-2 (16 bits and less): KernelBench's tolerance;
   integers and booleans equal r;
4. its norm-wise error e(c) = |c - o| / |o| is at most 4 max(e(r), e(p)), or the dtype's rounding floor. p is the
   float64 result for inputs and weights that are each moved by half a unit in the last place of their own dtype.

The floor has two parts. `FLOOR_EPS` epsilons of the output's dtype: 1 for 16-bit types, whose results are rounded once
from a wider accumulator (0.3 epsilon), 4 for float32, where sums accumulate in the type itself and an honest
reordering of one costs a few roundings more than the reference's. And e(p): where the result is a small difference of
large numbers (a mean of normalized values, say) even an exact algorithm cannot do better than what the rounding of its
inputs leaves, and the reference's own error, which may be small by luck, is no measure. Both lie far below what
computing in a lower precision costs: TF32 is off by 3e-4, the float32 floor is 5e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

FACTOR = 4.0
FLOOR_EPS = {torch.float64: 4.0, torch.float32: 4.0, torch.float16: 1.0, torch.bfloat16: 1.0}
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}
LOW_PRECISION_TOLERANCE = 1e-2


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


def check_output(name: str, got: torch.Tensor, want: Expected) -> tuple[float, Mismatch | None]:
    """Norm-wise error of one output (0 for integers) and what is wrong with it. `name` is for the message."""
    if got.shape != want.value.shape:
        return 0.0, Mismatch("Shape", f"{name} has shape {list(got.shape)}, the reference {list(want.value.shape)}")
    if got.dtype != want.value.dtype:
        return 0.0, Mismatch("DType", f"{name} has dtype {_type(got)}, the reference {_type(want.value)}")
    if got.numel() == 0:
        return 0.0, None
    if not got.dtype.is_floating_point:
        return 0.0, _check_exact(name, got, want.value)
    special = _check_special(name, got, want)
    if special is not None:
        return math.inf, special
    return _check_values(name, got, want)


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_exact(name: str, got: torch.Tensor, want: torch.Tensor) -> Mismatch | None:
    wrong = got != want
    if not bool(wrong.any()):
        return None
    where = _first(wrong)
    values = f"{got[where].item()} instead of {want[where].item()}"
    return Mismatch(
        "WrongValues", f"{name}: {_count(wrong)} differ from the reference; the first is at {list(where)}: {values}"
    )


def _check_special(name: str, got: torch.Tensor, want: Expected) -> Mismatch | None:
    """NaN and infinities. Where reference and oracle disagree about finiteness nothing is asked of the candidate."""
    comparable = torch.isfinite(want.value) & torch.isfinite(want.oracle)
    agreed = ~torch.isfinite(want.value) & ~torch.isfinite(want.oracle)
    bad_nan = comparable & torch.isnan(got)
    if bool(bad_nan.any()):
        where = _first(bad_nan)
        expected = want.value[where].item()
        note = " (memory from torch.empty that is never written reads as NaN here)"
        message = (
            f"{name}: {_count(bad_nan)} are NaN; the first is at {list(where)}, the reference has {expected:.6g}{note}"
        )
        return Mismatch("NaN", message)
    bad_infinite = comparable & torch.isinf(got)
    unlike = agreed & ~((got == want.value) | (torch.isnan(got) & torch.isnan(want.value)))
    for wrong in (bad_infinite, unlike):
        if bool(wrong.any()):
            where = _first(wrong)
            values = f"{got[where].item()} instead of {want.value[where].item()}"
            return Mismatch("Infinity", f"{name}: {_count(wrong)} differ; the first is at {list(where)}: {values}")
    return None


def _check_values(name: str, got: torch.Tensor, want: Expected) -> tuple[float, Mismatch | None]:
    finite = torch.isfinite(want.value) & torch.isfinite(want.oracle) & torch.isfinite(got)
    own, oracle = got.double(), want.oracle.double()
    reference = want.value.double()
    error = norm_error(own, oracle, finite)
    own_error = norm_error(reference, oracle, finite)
    tolerance = TOLERANCE.get(got.dtype, LOW_PRECISION_TOLERANCE)
    difference = torch.where(finite, (own - reference).abs(), 0.0)
    wrong = difference > tolerance + tolerance * torch.where(finite, reference.abs(), 0.0)
    errors = f"norm-wise error {error:.2e}, the reference's own {own_error:.2e}"
    if bool(wrong.any()):
        where = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
        message = (
            f"{name}: {_count(wrong)} are off by more than {tolerance:g} + {tolerance:g} |reference|{_box(wrong)}; "
            f"the worst is at {list(where)}: {got[where].item():.6g} instead of {reference[where].item():.6g}; {errors}"
        )
        return error, Mismatch("WrongValues", message)
    bound = error_bound(got.dtype, own_error, norm_error(want.rounded.double(), oracle, finite))
    if want.exact and error > bound:
        message = (
            f"{name} is within KernelBench's tolerance but less precise than {_type(got)} can be: {errors}, allowed "
            f"{bound:.2e}; do not compute in a lower precision (for tl.dot on fp32 use input_precision='tf32x3')"
        )
        return error, Mismatch("LowPrecision", message)
    return error, None


def error_bound(dtype: torch.dtype, reference_error: float, rounding_error: float) -> float:
    """Largest norm-wise error that passes, see the module's text.

    reference_error: e(r). rounding_error: e(p). All relative, without unit.
    """
    floor = FLOOR_EPS.get(dtype, 1.0) * torch.finfo(dtype).eps
    return max(FACTOR * reference_error, FACTOR * rounding_error, floor)


def norm_error(got: torch.Tensor, oracle: torch.Tensor, where: torch.Tensor) -> float:
    """|got - oracle| / |oracle| over the elements `where`, in the 2-norm; the numerator alone if the oracle is zero."""
    difference = torch.where(where, got - oracle, 0.0)
    scale = float(torch.linalg.vector_norm(torch.where(where, oracle, 0.0)))
    return float(torch.linalg.vector_norm(difference)) / (scale or 1.0)


def _first(wrong: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in wrong.nonzero()[0])


def _count(wrong: torch.Tensor) -> str:
    return f"{int(wrong.sum())} of {wrong.numel()} elements"


def _box(wrong: torch.Tensor) -> str:
    """Where the wrong elements lie, if not everywhere: a hint at a bad mask or offset."""
    if wrong.dim() == 0 or bool(wrong.all()):
        return ""
    places = wrong.nonzero()
    low, high = places.min(0).values.tolist(), places.max(0).values.tolist()
    if all(a == 0 and b == n - 1 for a, b, n in zip(low, high, wrong.shape, strict=True)):
        return ""
    return ", all within [" + ", ".join(f"{a}:{b + 1}" for a, b in zip(low, high, strict=True)) + "]"


def flatten(value: Any) -> tuple[list[Any], str]:
    """Leaves of nested tuples, lists and dicts in order, and the structure as text ("(*, [*, *])")."""
    if isinstance(value, tuple | list):
        parts = [flatten(item) for item in value]
        left, right = "()" if isinstance(value, tuple) else "[]"
        return [leaf for leaves, _ in parts for leaf in leaves], left + ", ".join(text for _, text in parts) + right
    if isinstance(value, dict):
        parts = [flatten(value[key]) for key in sorted(value, key=str)]
        names = [f"{key}: {text}" for key, (_, text) in zip(sorted(value, key=str), parts, strict=True)]
        return [leaf for leaves, _ in parts for leaf in leaves], "{" + ", ".join(names) + "}"
    return [value], "*"
