"""norms: layer, RMS, group, instance and batch normalization as steps."""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.body import NotCovered, Number, Operand, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Varying
from mtmc.rewrite.operators.steps import argument, count_of, floats, mean_of, tensor, variance_of

_NORMAL = "({0} - {1}) * (1.0 / tl.sqrt({2} + {3}))"
"""Of x, its mean, its variance and eps."""


def affine(builder: Builder, normal: str, weight: Any, bias: Any, name: str) -> None:
    if isinstance(weight, Ref) and isinstance(bias, Ref):
        builder.map("{0} * {1} + {2}", normal, weight.name, bias.name, name=name, flops=2)
    elif isinstance(weight, Ref):
        builder.map("{0} * {1}", normal, weight.name, name=name)
    elif isinstance(bias, Ref):
        builder.map("{0} + {1}", normal, bias.name, name=name)
    else:
        builder.map("{0}", normal, name=name, flops=0)


def _layer_norm(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    rank = len(builder.shape(x))
    dims = tuple(range(rank - len(op.args[1]), rank))
    normal = _normalized(builder, x, dims, argument(op, 4, "eps", 1e-5))
    affine(builder, normal, argument(op, 2, "weight"), argument(op, 3, "bias"), op.outputs[0])


def _rms_norm(builder: Builder, op: Op) -> None:
    x = tensor(op)
    floats(builder, op, x)
    rank = len(builder.shape(x))
    dims = tuple(range(rank - len(op.args[1]), rank))
    eps = argument(op, 3, "eps")
    scale = 1.1920928955078125e-07 if eps is None else eps
    squares = builder.map("{0} * {0}", x, hint="square")
    mean = mean_of(builder, squares, dims, True)
    normal = builder.map("{0} * (1.0 / tl.sqrt({1} + {2}))", x, mean, operand(scale), hint="normal", flops=4)
    affine(builder, normal, argument(op, 2, "weight"), None, op.outputs[0])


def _group_norm(builder: Builder, op: Op) -> None:
    x, groups = tensor(op), op.args[1]
    floats(builder, op, x)
    shape = builder.shape(x)
    counts = groups.values if isinstance(groups, Varying) else tuple(groups for _ in shape[0])
    inner = tuple(size // int(count) for size, count in zip(shape[1], counts, strict=True))
    grouped = (shape[0], tuple(int(count) for count in counts), inner, *shape[2:])
    # The whole normalization happens under the grouped shape; only its result has the input's shape again.
    regrouped = builder.view(x, grouped, hint="grouped")
    dims = tuple(range(2, len(grouped)))
    normal = _normalized(builder, regrouped, dims, argument(op, 4, "eps", 1e-5))
    flat = builder.view(normal, shape, hint="flat")
    channels(builder, flat, argument(op, 2, "weight"), argument(op, 3, "bias"), op.outputs[0])


def channels(builder: Builder, x: str, weight: Any, bias: Any, name: str) -> None:
    """x * weight + bias with a weight and bias per channel (dimension 1)."""
    ones = len(builder.shape(x)) - 2
    operands: list[Operand] = [x]
    expression = "{0}"
    for parameter, sign in ((weight, "*"), (bias, "+")):
        if isinstance(parameter, Ref):
            operands.append(builder.trailing(parameter.name, ones))
            expression += f" {sign} {{{len(operands) - 1}}}"
    builder.map(expression, *operands, name=name, flops=2)


def _normalized(builder: Builder, x: str, dims: tuple[int, ...], eps: Any) -> str:
    """(x - mean) / sqrt(variance + eps) with mean and variance over `dims`."""
    mean, variance = variance_of(builder, x, dims, 0)
    return builder.map(_NORMAL, x, mean, variance, operand(eps), hint="normal", flops=5)


def _instance_norm(builder: Builder, op: Op) -> None:
    x, weight, bias, mean, var, of_input, _, eps = op.args[:8]
    floats(builder, op, x.name)
    if of_input:
        dims = tuple(range(2, len(builder.shape(x.name))))
        channels(builder, _normalized(builder, x.name, dims, eps), weight, bias, op.outputs[0])
    else:
        _by_statistics(builder, op, (x, weight, bias, mean, var, eps))


def _batch_norm(builder: Builder, op: Op) -> None:
    x, weight, bias, mean, var, training, _, eps = op.args[:8]
    _batch_norm_of(builder, op, training, (x, weight, bias, mean, var, eps))


def _batch_norm_in_training(builder: Builder, op: Op) -> None:
    """With the running statistics that it leaves behind, where they are needed: old ones and new ones, weighted by momentum,
    the variance with the divisor n - 1."""
    x, weight, bias, *running, _, momentum, eps = op.args[:8]
    floats(builder, op, x.name)
    shape = builder.shape(x.name)
    dims = (0, *range(2, len(shape)))
    mean, variance = variance_of(builder, x.name, dims, 0)
    kept = [(running[at], op.outputs[3 + at]) for at in range(2) if op.outputs[3 + at] in builder.graph.used]
    for old, new in kept:
        found = mean
        if new == op.outputs[4]:
            count, less = count_of(builder, x.name, dims), count_of(builder, x.name, dims, 1)
            found = builder.map("{0} * ({1} / {2})", variance, count, less, hint="unbiased", flops=2)
        last = builder.trailing(old.name, len(shape) - 2)
        weighted = builder.map(
            "{0} * {2} + {1} * {3}", found, last, operand(momentum), Number(1 - momentum), hint="weighted", flops=3
        )
        builder.view(weighted, (shape[1],), name=new)
    normal = builder.map(_NORMAL, x.name, mean, variance, operand(eps), hint="normal", flops=5)
    channels(builder, normal, weight, bias, op.outputs[0])


def _batch_norm_eval(builder: Builder, op: Op) -> None:
    x, weight, bias, mean, var, _, eps = op.args[:7]
    _batch_norm_of(builder, op, False, (x, weight, bias, mean, var, eps))


def _batch_norm_of(builder: Builder, op: Op, training: bool, arguments: tuple[Any, ...]) -> None:
    x, weight, bias, mean, _, eps = arguments
    floats(builder, op, x.name)
    if training or mean is None:
        rank = len(builder.shape(x.name))
        normal = _normalized(builder, x.name, (0, *range(2, rank)), eps)
        channels(builder, normal, weight, bias, op.outputs[0])
    else:
        _by_statistics(builder, op, arguments)


def _by_statistics(builder: Builder, op: Op, arguments: tuple[Any, ...]) -> None:
    """Normalization by known means and variances, one of each a channel: elementwise, so it fuses with its neighbours."""
    x, weight, bias, mean, var, eps = arguments
    if not isinstance(mean, Ref) or not isinstance(var, Ref):
        raise NotCovered(f"{op.target} without statistics")
    ones = len(builder.shape(x.name)) - 2
    columns = builder.trailing(mean.name, ones), builder.trailing(var.name, ones)
    normal = builder.map(_NORMAL, x.name, *columns, operand(eps), hint="normal", flops=5)
    channels(builder, normal, weight, bias, op.outputs[0])


NORMS: dict[str, Expand] = {
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_in_training,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm_eval,
}
