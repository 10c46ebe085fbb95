"""arithmetic: sums, products, comparisons, logic, bits, bounds and choices, each in the dtype that torch computes in."""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.body import NotCovered, Number, Operand, folded, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import FP8, IN_ORDER, Op, Ref
from mtmc.rewrite.operators.steps import argument
from mtmc.rewrite.operators.typed import Typed, by_type, kind_of, result_dtype, triton_type, typed, typed_map

_MOST = "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
_LEAST = "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
MAXIMUM = Typed(_MOST, "tl.maximum({0}, {1})", "{0} | {1}", operands=2)
MINIMUM = Typed(_LEAST, "tl.minimum({0}, {1})", "{0} & {1}", operands=2)
# From 2^23 on all fp32 numbers are whole; a sum there is rounded to the nearest, to the even one of two.
_TO_NEAREST = "(tl.abs({0}) + 8388608.0) - 8388608.0"
_ROUNDED = f"tl.where({{0}} < 0.0, -({_TO_NEAREST}), {_TO_NEAREST})"
ROUND = f"tl.where(tl.abs({{0}}) < 8388608.0, {_ROUNDED}, {{0}})"
"""The nearest whole number of a float, the even one of two."""
_SUM = Typed("{0} + {1}", "{0} + {1}", "{0} | {1}", operands=2)
_DIFFERENCE = Typed("{0} - {1}", "{0} - {1}", operands=2)
_PRODUCT = Typed("{0} * {1}", "{0} * {1}", "{0} & {1}", operands=2)


def _compared(sign: str) -> Typed:
    expression = f"{{0}} {sign} {{1}}"
    return Typed(expression, expression, expression if sign in ("==", "!=") else "", compares=True, operands=2)


def _logical(expression: str, operands: int = 2) -> Expand:
    """Of masks: other values count as whether they are not 0."""

    def expand(builder: Builder, op: Op) -> None:
        typed_map(
            builder,
            Typed(masks=expression, operands=operands),
            [operand(each) for each in op.args],
            "bool",
            op.outputs[0],
        )

    return expand


def _bits(sign: str) -> Typed:
    return Typed("", f"{{0}} {sign} {{1}}", f"{{0}} {sign} {{1}}", operands=2)


# A shift by as many bits as there are, or by a negative number of them, leaves no bit of the operand, as in torch.
_BEYOND = "({1} < 0) | ({1} >= BITS)"
_LEFT = Typed("", "tl.where(" + _BEYOND + ", 0, {0} << ({1} & (BITS - 1)))", operands=2)
_RIGHT = Typed("", "{0} >> tl.where(" + _BEYOND + ", BITS - 1, {1})", operands=2)


def _added(row: Typed, back: bool = False) -> Expand:
    """left + alpha * right, or with a minus. back: the other way round."""

    def expand(builder: Builder, op: Op) -> None:
        left, right, alpha = operand(op.args[0]), operand(op.args[1]), argument(op, 2, "alpha", 1)
        if back:
            left, right = right, left
        dtype = result_dtype(builder, op)
        if _is_counter(builder, op):
            raise NotCovered("a counter: all that forward raises are raised in place by one call")
        if alpha == 1:
            typed_map(builder, row, [left, right], dtype, op.outputs[0])
            return
        if kind_of(dtype) == "bool" or back:
            raise NotCovered(f"{op.target} with alpha")
        expression = row.floats.replace("{1}", "{2} * {1}")
        typed_map(builder, Typed(expression, expression, flops=2), [left, right, operand(alpha)], dtype, op.outputs[0])

    return expand


def _is_counter(builder: Builder, op: Op) -> bool:
    """Whether a sum is of a single whole number from outside, as batch norms count their batches."""
    left = builder.graph.values[op.outputs[0]]
    return not left.shape and not left.is_float and isinstance(op.args[0], Ref) and op.args[0].name not in builder.nodes


def _clamp(builder: Builder, op: Op) -> None:
    """Between bounds, which may be tensors; the upper one holds where they cross. NaN stays."""
    dtype, value = result_dtype(builder, op), operand(op.args[0])
    bounds: list[tuple[Typed, Any]] = [(MAXIMUM, argument(op, 1, "min")), (MINIMUM, argument(op, 2, "max"))]
    given = [(row, operand(bound)) for row, bound in bounds if bound is not None]
    if all(isinstance(bound, Number) for _, bound in given):  # one expression: numbers need no node of their own
        _between(builder, op, dtype, [bound for _, bound in given])
        return
    for at, (row, bound) in enumerate(given):
        value = typed_map(builder, row, [value, bound], dtype, op.outputs[0] if at == len(given) - 1 else None)


def _between(builder: Builder, op: Op, dtype: str, bounds: list[Operand]) -> None:
    low, high = argument(op, 1, "min") is not None, argument(op, 2, "max") is not None
    expressions = []
    for most, least in ((MAXIMUM.floats, MINIMUM.floats), (MAXIMUM.whole, MINIMUM.whole)):
        expression = most if low else "{0}"
        if high:
            expression = least.replace("{1}", "{2}" if low else "{1}").replace("{0}", expression)
        expressions.append(expression)
    row = Typed(expressions[0], expressions[1], flops=2)
    typed_map(builder, row, [operand(op.args[0]), *bounds], dtype, op.outputs[0])


def choice(builder: Builder, condition: Operand, one: Operand, other: Operand, dtype: str, name: str | None) -> str:
    """One value where a condition holds, else the other one."""
    chosen = [typed(builder, each, dtype) for each in (one, other)]
    expression = "tl.where({0}, {1}, {2})"
    if all(isinstance(folded(builder.graph, each), Number) for each in chosen):
        expression = f"tl.where({{0}}, tl.cast({{1}}, {triton_type(dtype)}), {{2}})"
    mask = typed(builder, condition, "bool")
    return builder.map(expression, mask, *chosen, compute=kind_of(dtype), name=name, hint="choice")


def _where(builder: Builder, op: Op) -> None:
    condition, one, other = (operand(each) for each in op.args[:3])
    choice(builder, condition, one, other, result_dtype(builder, op), op.outputs[0])


def _masked_fill(builder: Builder, op: Op) -> None:
    x, mask, value = (operand(each) for each in op.args[:3])
    choice(builder, mask, value, x, result_dtype(builder, op), op.outputs[0])


def _copied(builder: Builder, op: Op) -> None:
    """The same numbers, in the dtype of the result."""
    source = op.args[0]
    if not isinstance(source, Ref):
        raise NotCovered(f"{op.target} of no tensor")
    dtype = result_dtype(builder, op)
    value = typed(builder, source.name, dtype)
    if dtype in FP8 and builder.graph.values[source.name].dtype != dtype:
        builder.map(_to_fp8(dtype), value, name=op.outputs[0])
        return
    builder.map("{0}", value, compute=kind_of(dtype), name=op.outputs[0], flops=0)


def _to_fp8(dtype: str) -> str:
    """The expression of a cast to 8 bits: kernels hold its numbers in fp32, rounded, since that is what quantizing is for.

    What is too large becomes the largest number of e4m3fn, in torch from 2.13 on and on the GPU. Raises: NotCovered for
    e5m2, where torch makes infinities and the GPU does not.
    """
    if dtype != "float8_e4m3fn":
        raise NotCovered(f"a cast to {dtype}, which makes infinities")
    return f"{{0}}.to(tl.{FP8[dtype]}).to(tl.float32)"


_ROWS: dict[str, Typed] = {
    "mul.Tensor multiply.Tensor mul.Scalar multiply.Scalar": _PRODUCT,
    "maximum.default max.other clamp_min.default clamp_min.Tensor": MAXIMUM,
    "fmax.default": Typed("tl.maximum({0}, {1})", "tl.maximum({0}, {1})", "{0} | {1}", operands=2),
    "fmin.default": Typed("tl.minimum({0}, {1})", "tl.minimum({0}, {1})", "{0} & {1}", operands=2),
    "minimum.default min.other clamp_max.default clamp_max.Tensor": MINIMUM,
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor": _bits("&"),
    "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor": _bits("|"),
    "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor": _bits("^"),
    "bitwise_not.default": Typed("", "~{0}", "{0} == 0"),
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor __lshift__.Scalar": _LEFT,
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor __rshift__.Scalar": _RIGHT,
    "hardtanh.default": Typed(
        _LEAST.format(_MOST, "{2}"),
        "tl.minimum(tl.maximum({0}, {1}), {2})",
        flops=2,
        operands=3,
        defaults=(-1.0, 1.0),
    ),
    "floor.default": Typed("tl.floor({0})", "{0}"),
    "ceil.default": Typed("tl.ceil({0})", "{0}"),
    "trunc.default fix.default": Typed("tl.where({0} < 0.0, tl.ceil({0}), tl.floor({0}))", "{0}", flops=2),
    "round.default": Typed(ROUND, "{0}", flops=6),
    "abs.default absolute.default": Typed("tl.abs({0})", "tl.abs({0})"),
    "neg.default negative.default": Typed("-{0}", "-{0}"),
    "square.default": Typed("{0} * {0}", "{0} * {0}"),
    "relu.default": Typed("tl.where({0} < 0.0, 0.0, {0})", "tl.maximum({0}, 0)"),
    "sign.default sgn.default": Typed(
        "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
        "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to(TYPE)",
        "{0}",
        2,
    ),
    **{
        f"{name}.Tensor {name}.Scalar {longer}.Tensor {longer}.Scalar": _compared(sign)
        for name, longer, sign in (
            ("gt", "greater", ">"),
            ("ge", "greater_equal", ">="),
            ("lt", "less", "<"),
            ("le", "less_equal", "<="),
            ("eq", "eq", "=="),
            ("ne", "not_equal", "!="),
        )
    },
    "isnan.default": Typed("{0} != {0}", "{0} != {0}", "{0} != {0}", compares=True),
    "isinf.default": Typed("tl.abs({0}) == float('inf')", "{0} != {0}", "{0} != {0}", 2, compares=True),
    "isfinite.default": Typed("tl.abs({0}) < float('inf')", "{0} == {0}", "{0} == {0}", 2, compares=True),
}

ARITHMETIC: dict[str, Expand] = {
    **{f"aten.{name}": by_type(row) for names, row in _ROWS.items() for name in names.split()},
    **{f"aten.{name}": _added(_SUM) for name in ("add.Tensor", "add.Scalar")},
    **{
        f"aten.{name}": _added(_DIFFERENCE)
        for name in ["sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar"]
    },
    **{f"aten.rsub.{kind}": _added(_DIFFERENCE, back=True) for kind in ("Tensor", "Scalar")},
    "aten.logical_and.default": _logical("{0} & {1}"),
    "aten.logical_or.default": _logical("{0} | {1}"),
    "aten.logical_xor.default": _logical("{0} != {1}"),
    "aten.logical_not.default": _logical("{0} == 0", 1),
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clip.default": _clamp,
    "aten.clip.Tensor": _clamp,
    "aten.where.self": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.Scalar": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.clone.default": _copied,
    "aten.to.dtype": _copied,
    "aten._to_copy.default": _copied,
    "aten.contiguous.default": _copied,
    IN_ORDER: _copied,
}
