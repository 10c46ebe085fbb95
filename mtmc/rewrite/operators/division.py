"""division: quotients rounded down or towards zero, and the rests that they leave, with torch's signs.

Triton divides whole numbers as C does: towards zero, the rest has the sign of the dividend. Rests of floats are found in
fp64, where the quotient of two fp32 numbers is exact to the unit up to 2^28; from 2^53 on nothing is known of the rest.
"""

from __future__ import annotations

import math
import struct

from mtmc.rewrite.body import NotCovered, Number, Operand, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.steps import argument
from mtmc.rewrite.operators.typed import Typed, beside, kind_of, result_dtype, typed, typed_map

_QUOTIENT = Typed("{0} / {1}", operands=2)
_TRUNCATED = "tl.where({0} < 0.0, tl.ceil({0}), tl.floor({0}))"
_WHOLE_REST = "({0} % {1})"


def _apart(rest: str, other: Operand, dtype: str = "float32") -> str:
    """Whether a rest and the divisor, {1}, have different signs: the quotient rounded down is then one less."""
    if dtype == "uint8":
        return ""
    if isinstance(other, Number):
        return f"{rest} > 0" if other.value < 0 else f"{rest} < 0"
    return f"({rest} != 0) & (({rest} < 0) != ({{1}} < 0))"


def _whole(builder: Builder, op: Op, dtype: str, which: str) -> None:
    """Of whole numbers: which of "floor", "trunc", "remainder" and "fmod"."""
    one, other = _pair(builder, op, dtype)
    apart, found = _apart(_WHOLE_REST, other, dtype), "{0} // {1}" if which in ("floor", "trunc") else _WHOLE_REST
    if apart and which in ("floor", "remainder"):
        corrected = "{0} // {1} - 1" if which == "floor" else f"{_WHOLE_REST} + {{1}}"
        found = f"tl.where({apart}, {corrected}, {found})"
    typed_map(builder, Typed(whole=found, flops=6), [one, other], dtype, op.outputs[0])


def _pair(builder: Builder, op: Op, dtype: str) -> tuple[Operand, Operand]:
    one, other = (typed(builder, operand(each), dtype) for each in op.args[:2])
    return beside(builder, one, other), beside(builder, other, one)


def _rest(builder: Builder, one: Operand, other: Operand, name: str | None = None) -> str:
    """The rest of floats that has the sign of the dividend."""
    if isinstance(other, Number):
        other = Number(_in_fp32(other.value))
        if math.isinf(other.value):
            finite = "tl.where(tl.abs({0}) < float('inf'), {0}, float('nan'))"
            return builder.map(finite, one, hint="rest", name=name, flops=2)
    wide = [builder.map("tl.cast({0}, tl.float64)", each, hint="wide") if isinstance(each, str) else each
            for each in (one, other)]  # fmt: skip
    quotient = builder.map("{0} / {1}", *wide, hint="quotient", flops=32)
    whole = builder.map(_TRUNCATED, quotient, hint="whole", flops=64)
    rest = builder.map("({0} - {2} * {1}).to(tl.float32)", *wide, whole, hint="rest", flops=64)
    if isinstance(other, Number):
        return builder.map("{0}", rest, hint="rest", name=name, flops=0)
    endless = "tl.where((tl.abs({0}) < float('inf')) & (tl.abs({1}) == float('inf')), {0}, {2})"
    return builder.map(endless, one, other, rest, hint="rest", name=name, flops=4)


def _in_fp32(value: float) -> float:
    """The fp32 number that torch takes for one."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _remainder(builder: Builder, op: Op) -> None:
    """The rest that has the sign of the divisor."""
    dtype = result_dtype(builder, op)
    if kind_of(dtype) != "float":
        _whole(builder, op, dtype, "remainder")
        return
    one, other = _pair(builder, op, dtype)
    rest = _rest(builder, one, other)
    expression = f"tl.where({_apart('{0}', other)}, {{0}} + {{1}}, {{0}})"
    builder.map(expression, rest, other, name=op.outputs[0], flops=5)


def _fmod(builder: Builder, op: Op) -> None:
    dtype = result_dtype(builder, op)
    if kind_of(dtype) != "float":
        _whole(builder, op, dtype, "fmod")
        return
    _rest(builder, *_pair(builder, op, dtype), op.outputs[0])


def _divided(mode: str | None) -> Expand:
    """mode: "floor", "trunc", or None for the op's own argument."""

    def expand(builder: Builder, op: Op) -> None:
        rounding, dtype = mode or argument(op, 2, "rounding_mode"), result_dtype(builder, op)
        items = [operand(each) for each in op.args[:2]]
        if rounding is None:
            typed_map(builder, _QUOTIENT, items, dtype, op.outputs[0])
        elif rounding not in ("floor", "trunc"):
            raise NotCovered(f"a quotient rounded by {rounding}")
        elif kind_of(dtype) != "float":
            _whole(builder, op, dtype, rounding)
        else:
            _rounded(builder, *_pair(builder, op, dtype), rounding == "floor", op.outputs[0])

    return expand


def _rounded(builder: Builder, one: Operand, other: Operand, down: bool, name: str) -> None:
    """As torch does: down from the quotient of what the rest leaves, which is whole up to rounding."""
    if not down:
        quotient = builder.map("tl.div_rn({0}, {1})", one, other, hint="quotient", flops=8)
        builder.map(_TRUNCATED, quotient, name=name, flops=2)
        return
    rest = _rest(builder, one, other)
    near = builder.map("tl.div_rn({0} - {2}, {1})", one, other, rest, hint="near", flops=9)
    less = f"tl.where({_apart('{0}', other)}, {{2}} - 1.0, {{2}})"
    lower = builder.map(less, rest, other, near, hint="lower", flops=5)
    floor = "tl.where({0} - tl.floor({0}) > 0.5, tl.floor({0}) + 1.0, tl.floor({0}))"
    if not isinstance(other, Number):
        floor = f"tl.where({{1}} == 0.0, {{2}} / {{1}}, {floor})"
    elif other.value == 0:
        floor = "{2} / tl.zeros_like({2})"
    builder.map(floor, lower, other, one, name=name, flops=6)


DIVISION: dict[str, Expand] = {
    **{f"aten.{name}.{kind}": _divided(None) for name in ("div", "divide", "true_divide")
       for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.floor_divide.{kind}": _divided("floor") for kind in ("default", "Scalar")},
    **{f"aten.remainder.{kind}": _remainder for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"aten.fmod.{kind}": _fmod for kind in ("Tensor", "Scalar")},
}  # fmt: skip
