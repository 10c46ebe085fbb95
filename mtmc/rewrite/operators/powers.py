"""powers: x to any exponent, as exact as fp32 allows, and of whole numbers.

|x| is m * 2^e with m about 1, so x^y is 2^(y e + y log2(m)). What is whole of the exponent is taken off before anything is
rounded (y e - k in one operation), so that large powers keep their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mtmc.rewrite.body import NotCovered, Number, Operand, folded, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.typed import beside, kind_of, result_dtype, typed

_ROOT_HALF = "1060439283"
"""The bits of sqrt(1/2), from which on a mantissa counts to the next power of two."""
_FORMS: dict[float, str] = {
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    4: "({0} * {0}) * ({0} * {0})",
    0.5: "tl.sqrt({0})",
    -0.5: "(1.0 / tl.sqrt({0}))",
    -1: "(1.0 / {0})",
    -2: "(1.0 / ({0} * {0}))",
    1: "{0}",
}


def _of_scalar(builder: Builder, op: Op) -> None:
    x, exponent = operand(op.args[0]), operand(op.args[1])
    dtype = result_dtype(builder, op)
    value = exponent.value if isinstance(exponent, Number) else None
    if kind_of(dtype) != "float":
        _whole(builder, x, exponent, dtype, op.outputs[0])
    elif value == 0:
        builder.map("tl.where({0} == {0}, 1.0, 1.0)", typed(builder, x, dtype), name=op.outputs[0])
    elif value is not None and math.isnan(value):
        raise NotCovered("a power to no number")
    elif value in _FORMS:
        builder.map(_FORMS[value], typed(builder, x, dtype), name=op.outputs[0], flops=2)
    else:
        power(builder, typed(builder, x, dtype), typed(builder, exponent, dtype), op.outputs[0])


def _of_tensor(builder: Builder, op: Op) -> None:
    base, exponent = operand(op.args[0]), operand(op.args[1])
    dtype = result_dtype(builder, op)
    if kind_of(dtype) != "float":
        _whole(builder, base, exponent, dtype, op.outputs[0])
    else:
        power(builder, typed(builder, base, dtype), typed(builder, exponent, dtype), op.outputs[0])


def power(builder: Builder, base: Operand, exponent: Operand, name: str | None = None) -> str:
    """base ** exponent, both fp32."""
    if isinstance(folded(builder.graph, base), Number):
        base = builder.map("tl.zeros_like({1}) + {0}", base, exponent, hint="base", flops=0)
    exponent = beside(builder, exponent, base)
    size = builder.map("tl.abs(tl.cast({0}, tl.float32))", base, hint="size")
    small = builder.map("{0} < 1.1754943508222875e-38", size, compute="bool", hint="small")
    bits = builder.map("tl.where({1}, {0} * 16777216.0, {0}).to(tl.int32, bitcast=True)", size, small, compute="int",
                       hint="bits")  # fmt: skip
    high = builder.map(f"({{0}} - {_ROOT_HALF}) >> 23", bits, compute="int", hint="high", flops=2)
    mantissa = builder.map("({0} - ({1} << 23)).to(tl.float32, bitcast=True)", bits, high, hint="mantissa", flops=2)
    e = builder.map("tl.where({1}, {0} - 24, {0}).to(tl.float32)", high, small, hint="e", flops=2)
    # An exponent beyond all bounds times 0 is to be 0.
    y = builder.map("tl.minimum(tl.maximum(tl.cast({0}, tl.float32), -1e30), 1e30)", exponent, hint="y", flops=2)
    part = builder.map("{0} * tl.log2({1})", y, mantissa, hint="part", flops=9)
    whole = builder.map("tl.floor({0} * {1} + {2} + 0.5)", y, e, part, hint="k", flops=4)
    k = builder.map("tl.minimum(tl.maximum({0}, -300.0), 300.0)", whole, hint="k", flops=2)
    rest = builder.map("tl.fma({0}, {1}, -{2}) + {3}", y, e, k, part, hint="rest", flops=3)
    half = builder.map("tl.floor(0.5 * {0})", k, hint="half", flops=2)
    near = "tl.exp2(tl.minimum(tl.maximum({0}, -1.0), 1.0)) * tl.exp2({2}) * tl.exp2({1} - {2})"
    found = builder.map(near, rest, k, half, hint="near", flops=14)
    return _signs(builder, base, exponent, size, found, name)


def _signs(builder: Builder, base: Operand, exponent: Operand, size: str, found: str, name: str | None) -> str:
    """Zeros, infinities, NaN, and the sign of a negative base: none but for whole exponents."""
    rules = _of_number(exponent.value) if isinstance(exponent, Number) else _RULES
    ends = f"tl.where({{1}} == float('inf'), {rules.beyond}, {{0}})"
    ends = f"tl.where({{1}} == 0.0, {rules.of_zero}, {ends})"
    signed = builder.map(ends, found, size, exponent, hint="bounded", flops=4)
    if rules.odd:
        negative = "(tl.cast({0}, tl.float32).to(tl.int32, bitcast=True) < 0)"
        expression = f"tl.where({negative} & {rules.odd}, -{{2}}, {{2}})"
        signed = builder.map(expression, base, exponent, signed, hint="signed", flops=6)
    real = f"tl.where({rules.unknown}, float('nan'), {{2}})"
    return builder.map(rules.one.format(real), base, exponent, signed, name=name, hint="power", flops=9)


@dataclass(frozen=True)
class _Rules:
    """What a base {0} and an exponent {1} say of a power: whether the exponent is odd, whether the power is no number, what
    stands for endless bases and for 0 (with the exponent as {2}), and what is 1 in any case."""

    odd: str
    unknown: str
    beyond: str
    of_zero: str
    one: str


# An endless exponent of -1 gives 1: its size is 1. Else a negative base needs a whole exponent.
_RULES = _Rules(
    "(tl.abs({1} - 2.0 * tl.floor(0.5 * {1})) == 1.0)",
    "({0} != {0}) | ({1} != {1}) | (({0} < 0.0) & ({0} > -float('inf')) & (tl.floor({1}) != {1}))",
    "tl.where({2} > 0.0, float('inf'), 0.0)",
    "tl.where({2} > 0.0, 0.0, float('inf'))",
    "tl.where(({{1}} == 0.0) | ({{0}} == 1.0), 1.0, {0})",
)


def _of_number(exponent: float) -> _Rules:
    """The same for an exponent that is known."""
    whole = exponent == math.floor(exponent) if math.isfinite(exponent) else True
    odd = "(tl.abs({0}) >= 0.0)" if math.isfinite(exponent) and exponent % 2 == 1 else ""
    ends = ("float('inf')", "0.0") if exponent > 0 else ("0.0", "float('inf')")
    unknown = "{0} != {0}" if whole else "({0} != {0}) | (({0} < 0.0) & ({0} > -float('inf')))"
    return _Rules(odd, unknown, *ends, "{0}")


def _whole(builder: Builder, base: Operand, exponent: Operand, dtype: str, name: str) -> None:
    """By squares, which wrap around as products do. A negative exponent leaves 1, -1 or 0."""
    if kind_of(dtype) == "bool":
        raise NotCovered("powers of masks")
    count = folded(builder.graph, exponent)
    if isinstance(count, Number):
        _to_number(builder, base, int(count.value), dtype, name)
        return
    square = typed(builder, base, dtype)
    left, result = typed(builder, exponent, dtype), Number(1)
    bits = 5 if dtype == "uint8" else 6
    found: Operand = result
    for _ in range(bits):
        found = builder.map("tl.where(({2} & 1) != 0, {0} * {1}, {0})" if found is not result else
                            "tl.where(({2} & 1) != 0, {1}, 1).to(TYPE)".replace("TYPE", f"tl.{dtype}"),
                            found, square, left, compute="int", hint="found", flops=3)  # fmt: skip
        square = builder.map("{0} * {0}", square, compute="int", hint="square")
        left = builder.map("{0} >> 1", left, compute="int", hint="left")
    # Of what is left of an exponent of 64 or more only its powers of 2 to the 64 would remain.
    plain = builder.map("{0}", found, compute="int", hint="plain", flops=0)
    odd = "({1} & 1) != 0"
    small = f"tl.where({{0}} == 1, 1, tl.where({{0}} == -1, tl.where({odd}, -1, 1), 0))"
    expression = f"tl.where({{1}} < 0, {small}, {{2}})" if dtype != "uint8" else "{2}"
    one = typed(builder, base, dtype)
    builder.map(expression, one, typed(builder, exponent, dtype), plain, compute="int", name=name, flops=5)


def _to_number(builder: Builder, base: Operand, count: int, dtype: str, name: str) -> None:
    if count < 0:
        raise NotCovered("a negative power of whole numbers")
    square, found = typed(builder, base, dtype), ""
    while count:
        if count & 1:
            found = builder.map("{0} * {1}", found, square, compute="int", hint="found") if found else str(square)
        count >>= 1
        square = builder.map("{0} * {0}", square, compute="int", hint="square") if count else square
    if found:
        builder.map("{0}", found, compute="int", name=name, flops=0)
    else:
        builder.map("{0} * 0 + 1", square, compute="int", name=name, flops=0)


POWERS: dict[str, Expand] = {
    "aten.pow.Tensor_Scalar": _of_scalar,
    "aten.pow.Tensor_Tensor": _of_tensor,
    "aten.pow.Scalar": _of_tensor,
}
