"""composites: ops that are several steps (reductions, softmax, variances), each a function that writes those steps.

`COMPOSITES` names them by their ATen op. Numerics follow torch: variances are taken from the centered values (two passes, no
cancellation), exponentials are shifted by the row's maximum.
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.rewrite.body import Index, NotCovered, Number, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Varying
from mtmc.rewrite.operators.steps import (
    argument,
    dims_of,
    floats,
    logsumexp_of,
    norm_of,
    softmax_of,
    tensor,
    variance_of,
)

_LOG2_TAIL = (
    "((((((((-9.5515952e-07 * {0} + 1.6668611e-05) * {0} - 7.9648758e-05) * {0} - 0.00038537441) * {0}"
    " + 0.0073695183) * {0} - 0.052691344) * {0} - 0.45914993) * {0} - 1.1511116) * {0} - 0.99999988)"
)
"""log2 of the normal distribution's tail beyond x >= 0, erfc(x / sqrt(2)) / 2: minimax for x < 6, with 4e-8 of the tail and
a ten-thousandth as its error. Behind that the tail is below 1e-9, and goes on to fall. An erf by the library takes twice as
many instructions, a third of what the tile of a product of 768 terms takes."""


def _gelu(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    if op.kwargs.get("approximate", "none") == "tanh":
        inner = builder.map("0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0})", x, hint="inner", flops=6)
        builder.map("{0} * tl.sigmoid(2.0 * {1})", x, inner, name=op.outputs[0], flops=5)
    else:
        tail = builder.map(
            f"tl.exp2({_LOG2_TAIL})", builder.map("tl.abs({0})", x, hint="size", flops=0), hint="tail", flops=18
        )
        builder.map("{0} * tl.where({0} > 0.0, 1.0 - {1}, {1})", x, tail, name=op.outputs[0], flops=2)


def _identity_if(condition: Callable[[Op], bool]) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        if not condition(op):
            raise NotCovered(f"{op.target} draws random numbers here")
        builder.map("{0}", tensor(op), name=op.outputs[0], flops=0)

    return expand


def _var(root: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        floats(builder, op, x)
        correction = op.kwargs.get("correction", 1)
        if op.target.endswith(".dim"):
            correction = 1 if argument(op, 2, "unbiased", True) else 0
        dims = dims_of(builder.shape(x), argument(op, 1, "dim"))
        keepdim = bool(argument(op, 3, "keepdim", False))
        _, variance = variance_of(builder, x, dims, 1 if correction is None else int(correction), keepdim)
        builder.map("tl.sqrt({0})" if root else "{0}", variance, name=op.outputs[0])

    return expand


def _var_mean(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    correction = op.kwargs.get("correction", 1)
    dims, keepdim = dims_of(builder.shape(x), argument(op, 1, "dim")), bool(op.kwargs.get("keepdim", False))
    mean, variance = variance_of(builder, x, dims, 1 if correction is None else int(correction), keepdim)
    builder.map("{0}", variance, name=op.outputs[0], flops=0)
    builder.view(mean, builder.shape(variance), name=op.outputs[1])


def _vector_norm(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    order, dtype = argument(op, 1, "ord", 2), argument(op, 4, "dtype")
    if dtype is not None or isinstance(order, Varying):
        raise NotCovered("a norm with another dtype or order")
    dims = dims_of(builder.shape(x), argument(op, 2, "dim"))
    norm_of(builder, x, float(order), dims, bool(argument(op, 3, "keepdim", False)), op.outputs[0])


def _softmax(log: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        floats(builder, op, x)
        if not builder.graph.values[op.outputs[0]].is_float:
            raise NotCovered("softmax with another dtype")
        dims = dims_of(builder.shape(x), op.args[1])
        if not log:
            softmax_of(builder, x, dims[0], op.outputs[0])
            return
        top = builder.reduce("max", x, dims, True, hint="max")
        shifted = builder.map("{0} - {1}", x, top, hint="shifted")
        exps = builder.map("tl.exp({0})", shifted, hint="exp", flops=2)
        total = builder.reduce("sum", exps, dims, True, hint="sum")
        builder.map("{0} - tl.log({1})", shifted, total, name=op.outputs[0], flops=2)

    return expand


def _logsumexp(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    dims, keepdim = dims_of(builder.shape(x), op.args[1]), bool(argument(op, 2, "keepdim", False))
    logsumexp_of(builder, x, dims, keepdim, op.outputs[0])


def _reshape(builder: Builder, op: Op) -> None:
    out = builder.graph.values[op.outputs[0]]
    builder.view(tensor(op), out.shape, name=op.outputs[0])


def _prelu(builder: Builder, op: Op) -> None:
    x, weight = tensor(op), tensor(op, 1)
    floats(builder, op, x, weight)
    ones = max(0, len(builder.shape(x)) - 2)
    slope = builder.trailing(weight, ones)
    builder.map("tl.where({0} > 0.0, {0}, {0} * {1})", x, slope, name=op.outputs[0], flops=2)


def _three(expression: str) -> Expand:
    """x + value * (y combined with z)."""

    def expand(builder: Builder, op: Op) -> None:
        operands = [tensor(op), tensor(op, 1), tensor(op, 2)]
        floats(builder, op, *operands)
        value = argument(op, 3, "value", 1)
        if value == 1:
            builder.map(f"{{0}} + {expression}", *operands, name=op.outputs[0], flops=2)
        else:
            builder.map(f"{{0}} + {{3}} * {expression}", *operands, operand(value), name=op.outputs[0], flops=3)

    return expand


def _triangle(lower: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x, diagonal = tensor(op), argument(op, 1, "diagonal", 0)
        if isinstance(diagonal, Varying):
            raise NotCovered("a diagonal that differs between shapes")
        kind = builder.compute(x)
        zero = {"float": "0.0", "int": "0", "bool": "False"}[kind]
        expression = f"tl.where({{1}} - {{2}} {'<=' if lower else '>='} {{3}}, {{0}}, {zero})"
        operands = x, Index(1), Index(2), Number(diagonal)
        builder.map(expression, *operands, compute=kind, name=op.outputs[0], flops=2)

    return expand


COMPOSITES: dict[str, Expand] = {
    "aten.gelu.default": _gelu,
    "aten.dropout.default": _identity_if(lambda op: not op.args[2] or op.args[1] == 0.0),
    "aten.var.dim": _var(False),
    "aten.var.correction": _var(False),
    "aten.std.dim": _var(True),
    "aten.std.correction": _var(True),
    "aten.softmax.int": _softmax(False),
    "aten.log_softmax.int": _softmax(True),
    "aten._softmax.default": _softmax(False),
    "aten._log_softmax.default": _softmax(True),
    "aten.logsumexp.default": _logsumexp,
    "aten.var_mean.correction": _var_mean,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.prelu.default": _prelu,
    "aten.tril.default": _triangle(True),
    "aten.triu.default": _triangle(False),
    "aten.addcmul.default": _three("{1} * {2}"),
    "aten.addcdiv.default": _three("{1} / {2}"),
    "aten.view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.flatten.using_ints": _reshape,
    "aten.unsqueeze.default": _reshape,
    "aten.squeeze.dim": _reshape,
    "aten.squeeze.dims": _reshape,
    "aten.squeeze.default": _reshape,
    "aten.unflatten.int": _reshape,
    "aten.view_as.default": _reshape,
    "aten.alias.default": _reshape,
    "aten.detach.default": _reshape,
}
