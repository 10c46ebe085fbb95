"""inverses: inverse circular functions and exp(x) - 1 out of what the compiler and the interpreter both know.

Polynomials on a narrow interval, and the identities that lead there (Cephes, single precision: asinf, atanf): some 2
units in the last place, as the library's.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.steps import floats, tensor

_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_HALF_PI = 1.5707963267948966
_TAN_8 = 0.41421356237309503  # of pi / 8


def _odd(builder: Builder, x: str, square: str, factors: Sequence[float]) -> str:
    """x + x * square * (a polynomial in the square of x)."""
    nested = repr(factors[0])
    for factor in factors[1:]:
        nested = f"({nested} * {{1}} + {factor!r})"
    return builder.map(f"{{0}} + {{0}} * {{1}} * {nested}", x, square, hint="arc", flops=2 * len(factors) + 2)


def _quarter(builder: Builder, op: Op) -> tuple[str, str, str]:
    """(x, its size, an arc). The arc is asin of the size up to 1/2, beyond that asin(sqrt((1 - size) / 2)).

    asin(s) = pi/2 - 2 asin(sqrt((1 - s) / 2)), so that nothing is lost where the slope is steep.
    """
    x = tensor(op)
    floats(builder, op, x)
    size = builder.map("tl.abs({0})", x, hint="size")
    square = builder.map("tl.where({0} > 0.5, 0.5 * (1.0 - {0}), {0} * {0})", size, hint="square", flops=3)
    root = builder.map("tl.where({0} > 0.5, tl.sqrt({1}), {0})", size, square, hint="root", flops=2)
    return x, size, _odd(builder, root, square, _ASIN)


def _asin(builder: Builder, op: Op) -> None:
    x, size, arc = _quarter(builder, op)
    result = f"tl.where({{1}} > 0.5, {_HALF_PI!r} - 2.0 * {{2}}, {{2}})"
    builder.map(f"tl.where({{0}} < 0.0, -({result}), {result})", x, size, arc, name=op.outputs[0], flops=5)


def _acos(builder: Builder, op: Op) -> None:
    x, size, arc = _quarter(builder, op)
    signed = builder.map("tl.where({0} < 0.0, -{1}, {1})", x, arc, hint="signed", flops=2)
    far = builder.map(
        f"tl.where({{0}} < 0.0, {2 * _HALF_PI!r} - 2.0 * {{1}}, 2.0 * {{1}})", x, arc, hint="far", flops=3
    )
    near = f"{_HALF_PI!r} - {{1}}"
    builder.map(f"tl.where({{0}} > 0.5, {{2}}, {near})", size, signed, far, name=op.outputs[0], flops=2)


def _atan(builder: Builder, op: Op) -> None:
    """atan(s) = pi/2 - atan(1/s) = pi/4 + atan((s - 1) / (s + 1)), of the size s."""
    x = tensor(op)
    floats(builder, op, x)
    size = builder.map("tl.abs({0})", x, hint="size")
    high, low = f"{{0}} > {1 / _TAN_8!r}", f"{{0}} > {_TAN_8!r}"
    inner = f"tl.where({high}, -1.0 / {{0}}, tl.where({low}, ({{0}} - 1.0) / ({{0}} + 1.0), {{0}}))"
    ratio = builder.map(inner, size, hint="ratio", flops=7)
    square = builder.map("{0} * {0}", ratio, hint="square")
    arc = _odd(builder, ratio, square, _ATAN)
    start = f"tl.where({high}, {_HALF_PI!r}, tl.where({low}, {_HALF_PI / 2!r}, 0.0))"
    whole = builder.map(f"{start} + {{1}}", size, arc, hint="whole", flops=5)
    builder.map("tl.where({0} < 0.0, -{1}, {1})", x, whole, name=op.outputs[0], flops=2)


def _expm1(builder: Builder, op: Op) -> None:
    """With u = exp(x) rounded, (u - 1) * x / log(u) loses nothing where x is small (Kahan)."""
    x = tensor(op)
    floats(builder, op, x)
    power = builder.map("tl.exp({0})", x, hint="power", flops=2)
    small = "tl.where({1} == 1.0, {0}, ({1} - 1.0) * {0} / tl.log({1}))"
    builder.map(f"tl.where(tl.abs({{0}}) > 1.0, {{1}} - 1.0, {small})", x, power, name=op.outputs[0], flops=9)


INVERSES: dict[str, Expand] = {
    "aten.asin.default": _asin,
    "aten.arcsin.default": _asin,
    "aten.acos.default": _acos,
    "aten.arccos.default": _acos,
    "aten.atan.default": _atan,
    "aten.arctan.default": _atan,
    "aten.expm1.default": _expm1,
    "aten.special_expm1.default": _expm1,
}
