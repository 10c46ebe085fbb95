"""elementwise: the table of elementwise ops: ATen name -> Triton expression, flops, domain. Adding an op is adding a row.

Expressions use only what both the compiler and the interpreter know (no libdevice). Each is as exact relative to what it
gives as fp32 allows: where two numbers that are nearly the same would be subtracted, a series stands instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Compute, NotCovered, Number, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op


@dataclass(frozen=True)
class Row:
    """One elementwise op.

    expression: over {0}, {1}, ...: the op's arguments in order, tensors and numbers alike. flops: per element.
    defaults: of arguments beyond those given. domain: which inputs it takes; result: what it gives.
    """

    expression: str
    flops: int = 1
    defaults: tuple[float | None, ...] = ()
    domain: tuple[Compute, ...] = ("float",)
    result: Compute = "float"


# Minimax over |x| < 0.625, where 2 sigmoid(2 x) - 1 would lose digits.
_TANH = (
    "tl.where(tl.abs({0}) < 0.625, {0} + {0} * {0} * {0} * (-0.333332819422 + {0} * {0} * (0.133314422036"
    " + {0} * {0} * (-0.0537397155531 + {0} * {0} * (0.0206390887954 - {0} * {0} * 0.00570498872745)))),"
    " 2.0 * tl.sigmoid(2.0 * {0}) - 1.0)"
)
# With u = 1 + x rounded, log(u) * x / (u - 1) loses nothing where x is small.
LOG1P = "tl.where(1.0 + {0} == 1.0, {0}, tl.log(1.0 + {0}) * {0} / ((1.0 + {0}) - 1.0))"
_EXPM1 = (
    "tl.where(tl.abs({0}) < 0.25, {0} * (1.0 + {0} * (0.5 + {0} * (0.16666666666666666 + {0} * (0.041666666666666664"
    " + {0} * (0.008333333333333333 + {0} * 0.001388888888888889))))), tl.exp({0}) - 1.0)"
)
_SINH = (
    "tl.where(tl.abs({0}) < 1.0, {0} + {0} * {0} * {0} * (0.16666666666666666 + {0} * {0} * (0.008333333333333333"
    " + {0} * {0} * (0.0001984126984126984 + {0} * {0} * 2.7557319223985893e-06))),"
    " 0.5 * tl.exp(0.5 * {0}) * tl.exp(0.5 * {0}) - 0.5 * tl.exp(-0.5 * {0}) * tl.exp(-0.5 * {0}))"
)  # halves, since exp(x) overflows before sinh(x) does
_COSH = "(0.5 * tl.exp(0.5 * {0}) * tl.exp(0.5 * {0}) + 0.5 * tl.exp(-0.5 * {0}) * tl.exp(-0.5 * {0}))"
_LOG1P_ANYWHERE = "tl.where({0} > 1e9, tl.log({0}), " + LOG1P + ")"  # where u is infinite, u / u is no number
LOG1P_EXP = LOG1P.format("tl.exp(-tl.abs({0}))")
"""log(1 + exp(-|x|)), which is small where |x| is large."""
# tanh(log(1 + e)) = (e e + 2 e) / (e e + 2 e + 2) with e = exp(x); from 20 on it is 1.
_EXP_20 = "tl.exp(tl.minimum({0}, 20.0))"
_MISH = f"{{0}} * ({_EXP_20} * ({_EXP_20} + 2.0) / ({_EXP_20} * ({_EXP_20} + 2.0) + 2.0))"

POINTWISE: dict[str, Row] = {
    "aten.relu6.default": Row("tl.where({0} < 0.0, 0.0, tl.where({0} > 6.0, 6.0, {0}))", 2),
    "aten.sigmoid.default": Row("tl.sigmoid({0})", 4),
    "aten.tanh.default": Row(_TANH, 14),
    "aten.special_expit.default": Row("tl.sigmoid({0})", 4),
    "aten.silu.default": Row("{0} * tl.sigmoid({0})", 5),
    "aten.softsign.default": Row("{0} / (1.0 + tl.abs({0}))", 3),
    "aten.log_sigmoid.default": Row("tl.minimum({0}, 0.0) - " + LOG1P_EXP, 10),
    "aten.mish.default": Row(_MISH, 8),
    "aten.hardswish.default": Row("{0} * tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) / 6.0", 5),
    "aten.hardsigmoid.default": Row("tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) / 6.0", 4),
    "aten.leaky_relu.default": Row("tl.where({0} > 0.0, {0}, {0} * {1})", 2, (0.01,)),
    "aten.elu.default": Row(
        "{2} * tl.where({0} > 0.0, {0}, {1} * " + _EXPM1.format("({0} * {3})") + ")", 14, (1.0, 1.0, 1.0)
    ),
    "aten.selu.default": Row("1.0507009873554805 * tl.where({0} > 0.0, {0}, 1.6732632423543772 * " + _EXPM1 + ")", 14),
    "aten.celu.default": Row("tl.where({0} > 0.0, {0}, {1} * " + _EXPM1.format("({0} / {1})") + ")", 14, (1.0,)),
    "aten.expm1.default": Row(_EXPM1, 12),
    "aten.special_expm1.default": Row(_EXPM1, 12),
    "aten.softplus.default": Row(
        "tl.where({0} * {1} > {2}, {0}, (tl.maximum({0} * {1}, 0.0) + " + LOG1P_EXP.format("({0} * {1})") + ") / {1})",
        13,
        (1.0, 20.0),
    ),
    "aten.exp.default": Row("tl.exp({0})", 2),
    "aten.log.default": Row("tl.log({0})", 2),
    "aten.sqrt.default": Row("tl.sqrt({0})", 2),
    "aten.rsqrt.default": Row("(1.0 / tl.sqrt({0}))", 2),
    "aten.reciprocal.default": Row("(1.0 / {0})", 2),
    "aten.sin.default": Row("tl.sin({0})", 2),
    "aten.cos.default": Row("tl.cos({0})", 2),
    "aten.tan.default": Row("tl.sin({0}) / tl.cos({0})", 5),
    "aten.sinh.default": Row(_SINH, 16),
    "aten.cosh.default": Row(_COSH, 9),
    "aten.erf.default": Row("tl.erf({0})", 8),
    "aten.special_erf.default": Row("tl.erf({0})", 8),
    "aten.exp2.default": Row("tl.exp2({0})", 2),
    "aten.log2.default": Row("tl.log2({0})", 2),
    "aten.log10.default": Row("tl.log({0}) * 0.4342944819032518", 3),
    "aten.log1p.default": Row(_LOG1P_ANYWHERE, 7),
    "aten.special_log1p.default": Row(_LOG1P_ANYWHERE, 7),
    "aten.sigmoid_backward.default": Row("{0} * ((1.0 - {1}) * {1})", 3),
    "aten.tanh_backward.default": Row("{0} * (1.0 - {1} * {1})", 3),
    "aten.threshold_backward.default": Row("tl.where({1} <= {2}, 0.0, {0})"),
    "aten.rad2deg.default": Row("{0} * 57.29577951308232"),
    "aten.deg2rad.default": Row("{0} * 0.017453292519943295"),
    "aten.threshold.default": Row("tl.where({0} > {1}, {0}, {2})"),
    "aten.hardshrink.default": Row("tl.where(tl.abs({0}) > {1}, {0}, 0.0)", 2, (0.5,)),
    "aten.softshrink.default": Row("tl.where({0} > {1}, {0} - {1}, tl.where({0} < -{1}, {0} + {1}, 0.0))", 4, (0.5,)),
    "aten.lerp.Scalar": Row("{0} + {2} * ({1} - {0})", 3),
    "aten.signbit.default": Row("{0}.to(tl.float32).to(tl.int32, bitcast=True) < 0", 1, (), ("float",), "bool"),
}


def elementwise(row: Row) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        operands = [operand(argument) for argument in op.args]
        if row.domain == ("float",) and builder.graph.values[op.outputs[0]].is_float:
            operands = [builder.floating(item) for item in operands]  # a mask times numbers, say
        needed = row.expression.count("{") and max(int(part[0]) for part in row.expression.split("{")[1:]) + 1
        given = len(operands)
        missing = row.defaults[given - needed :] if given < needed and row.defaults else ()
        operands += [Number(value) for value in missing if value is not None]
        if len(operands) < needed or op.kwargs:
            raise NotCovered(f"{op.target} with arguments {op.args} {dict(op.kwargs)}")
        for item in operands:
            if isinstance(item, str) and builder.compute(item) not in row.domain:
                raise NotCovered(f"{op.target} on {builder.compute(item)} values")
        builder.map(row.expression, *operands, compute=row.result, name=op.outputs[0], flops=row.flops)

    return expand
