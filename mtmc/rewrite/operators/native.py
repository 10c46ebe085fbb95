"""native: ops that autograd and decompositions name instead of the public ones.

Norms with the statistics that they found, and backward ops that go row by row.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.body import NotCovered, Operand, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Varying
from mtmc.rewrite.operators.norms import affine, channels
from mtmc.rewrite.operators.steps import count_of, floats, tensor, variance_of

_NORMAL = "({0} - {1}) * {2}"
"""Of x, its mean, and 1 / the root of its variance."""


def _statistics(builder: Builder, x: str, dims: tuple[int, ...], eps: Any) -> tuple[str, str]:
    """Mean and 1 / sqrt(variance + eps) over some dimensions, which are kept with size 1."""
    mean, variance = variance_of(builder, x, dims, 0)
    return mean, builder.map("1.0 / tl.sqrt({0} + {1})", variance, operand(eps), hint="rstd", flops=4)


def _give(builder: Builder, op: Op, found: tuple[str, str]) -> None:
    """The statistics as results, under the shapes that torch gives them, where something reads them."""
    for name, value in zip(op.outputs[1:], found, strict=False):
        if name in builder.graph.used:
            builder.view(value, builder.graph.values[name].shape, name=name)


def _layer_norm(builder: Builder, op: Op) -> None:
    x, shape, weight, bias, eps = op.args[:5]
    floats(builder, op, x.name)
    rank = len(builder.shape(x.name))
    found = _statistics(builder, x.name, tuple(range(rank - len(shape), rank)), eps)
    normal = builder.map(_NORMAL, x.name, *found, hint="normal", flops=2)
    affine(builder, normal, weight, bias, op.outputs[0])
    _give(builder, op, found)


def _grouped(builder: Builder, x: str, groups: Any) -> tuple[tuple[int, ...], ...]:
    """The shape of x with its channels as groups of channels."""
    shape = builder.shape(x)
    counts = groups.values if isinstance(groups, Varying) else tuple(groups for _ in shape[0])
    inner = tuple(size // int(count) for size, count in zip(shape[1], counts, strict=True))
    return (shape[0], tuple(int(count) for count in counts), inner, *shape[2:])


def _group_norm(builder: Builder, op: Op) -> None:
    x, weight, bias, _, _, _, groups, eps = op.args[:8]
    floats(builder, op, x.name)
    grouped = builder.view(x.name, _grouped(builder, x.name, groups), hint="grouped")
    found = _statistics(builder, grouped, tuple(range(2, len(builder.shape(grouped)))), eps)
    normal = builder.map(_NORMAL, grouped, *found, hint="normal", flops=2)
    flat = builder.view(normal, builder.shape(x.name), hint="flat")
    channels(builder, flat, weight, bias, op.outputs[0])
    _give(builder, op, found)


def _batch_norm(builder: Builder, op: Op) -> None:
    """By the input's own statistics."""
    x, weight, bias, _, _, eps = op.args[:6]
    floats(builder, op, x.name)
    rank = len(builder.shape(x.name))
    found = _statistics(builder, x.name, (0, *range(2, rank)), eps)
    normal = builder.map(_NORMAL, x.name, *found, hint="normal", flops=2)
    channels(builder, normal, weight, bias, op.outputs[0])
    _give(builder, op, found)


def _dropout(builder: Builder, op: Op) -> None:
    x, share, training = op.args[:3]
    if training and share != 0.0:
        raise NotCovered(f"{op.target} draws random numbers here")
    floats(builder, op, x.name)
    builder.map("{0}", x.name, name=op.outputs[0], flops=0)
    builder.map("tl.abs({0}) >= 0.0", x.name, compute="bool", name=op.outputs[1], flops=0)


def _layer_norm_backward(builder: Builder, op: Op) -> None:
    grad, x, shape, mean, rstd, weight = op.args[:6]
    floats(builder, op, grad.name, x.name)
    rank = len(builder.shape(x.name))
    normal = builder.map(_NORMAL, x.name, mean.name, rstd.name, hint="normal", flops=2)
    if op.outputs[0] in builder.graph.used:
        scaled = grad.name
        if isinstance(weight, Ref):
            scaled = builder.map("{0} * {1}", scaled, weight.name, hint="scaled")
        dims = tuple(range(rank - len(shape), rank))
        _of_normal(builder, scaled, normal, rstd.name, dims, op.outputs[0])
    lead = tuple(range(rank - len(shape)))
    for at, each in ((1, "{0} * {1}"), (2, "{0}")):
        if len(op.outputs) > at and op.outputs[at] in builder.graph.used:
            value = builder.map(each, grad.name, normal, hint="each") if at == 1 else grad.name
            builder.reduce("sum", value, lead, False, name=op.outputs[at])


def _of_normal(builder: Builder, grad: str, normal: str, rstd: Operand, dims: tuple[int, ...], name: str | None) -> str:
    """The gradient of what was normalized over some dimensions: grad without its mean and its share along the result."""
    count = count_of(builder, grad, dims)
    total = builder.reduce("sum", grad, dims, True, hint="total")
    product = builder.map("{0} * {1}", grad, normal, hint="product")
    along = builder.reduce("sum", product, dims, True, hint="along")
    expression = "({0} - ({1} + {2} * {3}) / {4}) * {5}"
    return builder.map(expression, grad, total, normal, along, count, rstd, name=name, hint="grad", flops=6)


def _group_norm_backward(builder: Builder, op: Op) -> None:
    grad, x, mean, rstd, weight, _, _, _, groups = op.args[:9]
    floats(builder, op, grad.name, x.name)
    if any(name in builder.graph.used for name in op.outputs[1:]):
        raise NotCovered(f"{op.target} with the gradients of weight and bias")
    shape, spread = builder.shape(x.name), _grouped(builder, x.name, groups)
    scaled = grad.name
    if isinstance(weight, Ref):
        column = builder.trailing(weight.name, len(shape) - 2)
        scaled = builder.map("{0} * {1}", scaled, column, hint="scaled")
    ones = len(spread) - 2
    columns = [builder.trailing(each.name, ones) for each in (mean, rstd)]
    grads, inputs = builder.view(scaled, spread, hint="grads"), builder.view(x.name, spread, hint="inputs")
    normal = builder.map(_NORMAL, inputs, *columns, hint="normal", flops=2)
    found = _of_normal(builder, grads, normal, columns[1], tuple(range(2, len(spread))), None)
    builder.view(found, shape, name=op.outputs[0])


def _softmax_backward(log: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        grad, result = tensor(op), tensor(op, 1)
        floats(builder, op, grad, result)
        dims = (int(op.args[2]) % len(builder.shape(grad)),)
        if log:
            total = builder.reduce("sum", grad, dims, True, hint="total")
            builder.map("{0} - tl.exp({1}) * {2}", grad, result, total, name=op.outputs[0], flops=4)
            return
        each = builder.map("{0} * {1}", grad, result, hint="each")
        total = builder.reduce("sum", each, dims, True, hint="total")
        builder.map("{0} * {1} - {1} * {2}", grad, result, total, name=op.outputs[0], flops=3)

    return expand


NATIVE: dict[str, Expand] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten._native_batch_norm_legit.no_stats": _batch_norm,
    "aten.native_dropout.default": _dropout,
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten.native_group_norm_backward.default": _group_norm_backward,
    "aten._softmax_backward_data.default": _softmax_backward(False),
    "aten._log_softmax_backward_data.default": _softmax_backward(True),
}
