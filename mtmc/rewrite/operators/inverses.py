"""inverses: inverse circular functions and exp(x) - 1 out of what the compiler and the interpreter both know.

Polynomials on a narrow interval, and the identities that lead there (Cephes, single precision: asinf, atanf): some 2
units in the last place, as the library's.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import NotCovered, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.elementwise import LOG1P
from mtmc.rewrite.operators.typed import typed

_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_LOG_2 = 0.6931471805599453
_HALF_PI = 1.5707963267948966
_TAN_8 = 0.41421356237309503  # of pi / 8


def _floats(builder: Builder, op: Op, at: int = 0) -> str:
    """An argument as floats."""
    x = typed(builder, operand(op.args[at]), "float32")
    if not isinstance(x, str):
        raise NotCovered(f"{op.target} of a number")
    return x


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
    x = _floats(builder, op)
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
    x = _floats(builder, op)
    whole = _atan_of(builder, builder.map("tl.abs({0})", x, hint="size"))
    builder.map("tl.where({0} < 0.0, -{1}, {1})", x, whole, name=op.outputs[0], flops=2)


def _atan_of(builder: Builder, size: str) -> str:
    """atan(s) = pi/2 - atan(1/s) = pi/4 + atan((s - 1) / (s + 1)), of a size s."""
    high, low = f"{{0}} > {1 / _TAN_8!r}", f"{{0}} > {_TAN_8!r}"
    inner = f"tl.where({high}, -1.0 / {{0}}, tl.where({low}, ({{0}} - 1.0) / ({{0}} + 1.0), {{0}}))"
    ratio = builder.map(inner, size, hint="ratio", flops=7)
    square = builder.map("{0} * {0}", ratio, hint="square")
    arc = _odd(builder, ratio, square, _ATAN)
    start = f"tl.where({high}, {_HALF_PI!r}, tl.where({low}, {_HALF_PI / 2!r}, 0.0))"
    return builder.map(f"{start} + {{1}}", size, arc, hint="whole", flops=5)


def _atan2(builder: Builder, op: Op) -> None:
    """The angle of (x, y) by the ratio of the smaller to the larger size, then mirrored into its octant."""
    y, x = _floats(builder, op), _floats(builder, op, 1)
    sizes = [builder.map("tl.abs({0})", each, hint="size") for each in (y, x)]
    unlike = "({0} == 0.0) & ({1} == 0.0)"
    ratio = builder.map(
        f"tl.where({unlike}, 0.0, tl.where({{0}} == {{1}}, 1.0, tl.minimum({{0}}, {{1}}) / tl.maximum({{0}}, {{1}})))",
        *sizes,
        hint="ratio",
        flops=8,
    )
    known = builder.map("tl.where(({0} != {0}) | ({1} != {1}), {0} + {1}, {2})", *sizes, ratio, hint="ratio", flops=4)
    arc = _atan_of(builder, known)
    steep = builder.map(f"tl.where({{0}} > {{1}}, {_HALF_PI!r} - {{2}}, {{2}})", *sizes, arc, hint="steep", flops=3)
    left = f"tl.where({_NEGATIVE}, {2 * _HALF_PI!r} - {{1}}, {{1}})"
    half = builder.map(left, x, steep, hint="half", flops=3)
    builder.map(f"tl.where({_NEGATIVE}, -{{1}}, {{1}})", y, half, name=op.outputs[0], flops=3)


_NEGATIVE = "{0}.to(tl.int32, bitcast=True) < 0"
"""Of a sign, that of -0.0 too."""


def _asinh(builder: Builder, op: Op) -> None:
    """asinh(s) = log1p(s + s^2 / (1 + sqrt(s^2 + 1))), of the size s; of a large one log(2 s)."""
    x = _floats(builder, op)
    size = builder.map("tl.abs({0})", x, hint="size")
    inner = builder.map("{0} + {0} * ({0} / (1.0 + tl.sqrt({0} * {0} + 1.0)))", size, hint="inner", flops=8)
    small = builder.map(LOG1P, inner, hint="small", flops=6)
    whole = builder.map(f"tl.where({{0}} > 1e9, tl.log({{0}}) + {_LOG_2!r}, {{1}})", size, small, hint="whole", flops=4)
    builder.map("tl.where({0} < 0.0, -{1}, {1})", x, whole, name=op.outputs[0], flops=2)


def _acosh(builder: Builder, op: Op) -> None:
    """acosh(x) = log1p(t + sqrt(2 t + t^2)) with t = x - 1; of a large x log(2 x)."""
    x = _floats(builder, op)
    beyond = builder.map("{0} - 1.0", x, hint="beyond")
    inner = builder.map("{0} + tl.sqrt(2.0 * {0} + {0} * {0})", beyond, hint="inner", flops=5)
    small = builder.map(LOG1P, inner, hint="small", flops=6)
    whole = f"tl.where({{0}} > 1e9, tl.log({{0}}) + {_LOG_2!r}, {{1}})"
    builder.map(f"tl.where({{0}} < 1.0, float('nan'), {whole})", x, small, name=op.outputs[0], flops=5)


def _atanh(builder: Builder, op: Op) -> None:
    """atanh(s) = log1p(2 s / (1 - s)) / 2, of the size s."""
    x = _floats(builder, op)
    size = builder.map("tl.abs({0})", x, hint="size")
    inner = builder.map("2.0 * {0} / (1.0 - {0})", size, hint="inner", flops=6)
    half = builder.map("0.5 * " + LOG1P, inner, hint="half", flops=7)
    ends = "tl.where({1} == 1.0, float('inf'), {2})"
    whole = builder.map(f"tl.where({{1}} > 1.0, float('nan'), {ends})", x, size, half, hint="whole", flops=3)
    builder.map("tl.where({0} < 0.0, -{1}, {1})", x, whole, name=op.outputs[0], flops=2)


INVERSES: dict[str, Expand] = {
    "aten.asin.default": _asin,
    "aten.arcsin.default": _asin,
    "aten.acos.default": _acos,
    "aten.arccos.default": _acos,
    **{f"aten.{name}.default": _asinh for name in ("asinh", "arcsinh")},
    **{f"aten.{name}.default": _acosh for name in ("acosh", "arccosh")},
    **{f"aten.{name}.default": _atanh for name in ("atanh", "arctanh")},
    **{f"aten.{name}.default": _atan2 for name in ("atan2", "arctan2")},
    "aten.atan.default": _atan,
    "aten.arctan.default": _atan,
}
