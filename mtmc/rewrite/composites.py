"""composites: ops that are several steps (norms, softmax, losses, products), each a function that writes those steps.

`COMPOSITES` names them by their ATen op. Numerics follow torch: variances are taken from the centered values (two passes, no
cancellation), exponentials are shifted by the row's maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mtmc.rewrite.body import Builder, Count, Expand, NotCovered, Number, Operand, operand
from mtmc.rewrite.graph import Op, Ref, Shape, Varying, product


def _argument(op: Op, index: int, name: str, default: Any = None) -> Any:
    return op.args[index] if len(op.args) > index else op.kwargs.get(name, default)


def _tensor(op: Op, index: int = 0) -> str:
    argument = op.args[index]
    if not isinstance(argument, Ref):
        raise NotCovered(f"{op.target}: argument {index} is not a tensor")
    return argument.name


def _floats(builder: Builder, op: Op, *names: str) -> None:
    for name in names:
        if builder.compute(name) != "float":
            raise NotCovered(f"{op.target} on {builder.compute(name)} values")


def _add(sign: str) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        left, right = operand(op.args[0]), operand(op.args[1])
        _floats(builder, op, *[item for item in (left, right) if isinstance(item, str)])
        alpha = _argument(op, 2, "alpha", 1)
        if alpha == 1:
            builder.map(f"{{0}} {sign} {{1}}", left, right, name=op.outputs[0])
        else:
            builder.map(f"{{0}} {sign} {{2}} * {{1}}", left, right, operand(alpha), name=op.outputs[0], flops=2)

    return expand


def _rsub(builder: Builder, op: Op) -> None:
    if _argument(op, 2, "alpha", 1) != 1:
        raise NotCovered("rsub with alpha")
    _floats(builder, op, _tensor(op))
    builder.map("{1} - {0}", _tensor(op), operand(op.args[1]), name=op.outputs[0])


def _gelu(builder: Builder, op: Op) -> None:
    x = _tensor(op)
    _floats(builder, op, x)
    if op.kwargs.get("approximate", "none") == "tanh":
        inner = builder.map("0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0})", x, hint="inner", flops=6)
        builder.map("{0} * tl.sigmoid(2.0 * {1})", x, inner, name=op.outputs[0], flops=5)
    else:
        expression = f"0.5 * {{0}} * (1.0 + tl.erf({{0}} * {math.sqrt(0.5)!r}))"
        builder.map(expression, x, name=op.outputs[0], flops=12)


def _pow(builder: Builder, op: Op) -> None:
    x, exponent = _tensor(op), op.args[1]
    _floats(builder, op, x)
    forms: dict[Any, str] = {
        2: "{0} * {0}",
        3: "{0} * {0} * {0}",
        0.5: "tl.sqrt({0})",
        -0.5: "(1.0 / tl.sqrt({0}))",
        -1: "(1.0 / {0})",
        1: "{0}",
    }
    if isinstance(exponent, (Varying, Ref)) or exponent not in forms:
        raise NotCovered(f"pow with exponent {exponent}")
    builder.map(forms[exponent], x, name=op.outputs[0], flops=2)


def _clamp(builder: Builder, op: Op) -> None:
    x = _tensor(op)
    _floats(builder, op, x)
    low, high = _argument(op, 1, "min"), _argument(op, 2, "max")
    operands: list[Operand] = [x]
    expression = "{0}"
    if low is not None:
        operands.append(operand(low))
        expression = f"tl.maximum({expression}, {{{len(operands) - 1}}})"
    if high is not None:
        operands.append(operand(high))
        expression = f"tl.minimum({expression}, {{{len(operands) - 1}}})"
    builder.map(expression, *operands, name=op.outputs[0], flops=2)


def _identity_if(condition: Callable[[Op], bool]) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        if not condition(op):
            raise NotCovered(f"{op.target} draws random numbers here")
        builder.map("{0}", _tensor(op), name=op.outputs[0], flops=0)

    return expand


def _dims(shape: Shape, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(len(shape)))
    if isinstance(dim, Varying) or (isinstance(dim, tuple) and any(isinstance(each, Varying) for each in dim)):
        raise NotCovered("a reduced dimension that differs between shapes")
    return tuple(each % len(shape) for each in (dim if isinstance(dim, tuple) else (dim,)))


def _reduction(operation: str, dim_at: int = 1) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = _tensor(op)
        _floats(builder, op, x)
        if _argument(op, dim_at + 2, "dtype") is not None:
            raise NotCovered(f"{op.target} with another dtype")
        dims = _dims(builder.shape(x), _argument(op, dim_at, "dim"))
        keepdim = bool(_argument(op, dim_at + 1, "keepdim", False))
        if operation == "mean":
            _mean(builder, x, dims, keepdim, op.outputs[0])
        else:
            builder.reduce(operation, x, dims, keepdim, name=op.outputs[0])

    return expand


def _count(builder: Builder, x: str, dims: tuple[int, ...], less: int = 0) -> Operand:
    """Number of reduced elements less some, as an operand that holds for any shape."""
    return Count(product(tuple(builder.shape(x)[dim] for dim in dims)), less)


def _mean(builder: Builder, x: str, dims: tuple[int, ...], keepdim: bool, name: str | None = None) -> str:
    total = builder.reduce("sum", x, dims, keepdim, hint="sum")
    return builder.map("{0} / {1}", total, _count(builder, x, dims), name=name, hint="mean")


def _variance(builder: Builder, x: str, dims: tuple[int, ...], less: int, keepdim: bool = True) -> tuple[str, str]:
    """(x - mean, variance with divisor count - less), two passes as torch does: no cancellation."""
    mean = _mean(builder, x, dims, True)
    centered = builder.map("{0} - {1}", x, mean, hint="centered")
    squares = builder.map("{0} * {0}", centered, hint="square")
    total = builder.reduce("sum", squares, dims, keepdim, hint="squares")
    return centered, builder.map("{0} / {1}", total, _count(builder, x, dims, less), hint="var")


def _var(root: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = _tensor(op)
        _floats(builder, op, x)
        correction = op.kwargs.get("correction", 1)
        if op.target.endswith(".dim"):
            correction = 1 if _argument(op, 2, "unbiased", True) else 0
        dims = _dims(builder.shape(x), _argument(op, 1, "dim"))
        keepdim = bool(_argument(op, 3, "keepdim", False))
        _, variance = _variance(builder, x, dims, 1 if correction is None else int(correction), keepdim)
        builder.map("tl.sqrt({0})" if root else "{0}", variance, name=op.outputs[0])

    return expand


def _extreme(which: str) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = _tensor(op)
        _floats(builder, op, x)
        dims, keepdim = _dims(builder.shape(x), op.args[1]), bool(_argument(op, 2, "keepdim", False))
        builder.reduce(which, x, dims, keepdim, name=op.outputs[0])
        builder.reduce(f"arg{which}", x, dims, keepdim, name=op.outputs[1])

    return expand


def _softmax(log: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = _tensor(op)
        _floats(builder, op, x)
        if _argument(op, 2, "dtype") is not None:
            raise NotCovered("softmax with another dtype")
        dims = _dims(builder.shape(x), op.args[1])
        top = builder.reduce("max", x, dims, True, hint="max")
        shifted = builder.map("{0} - {1}", x, top, hint="shifted")
        exps = builder.map("tl.exp({0})", shifted, hint="exp", flops=2)
        total = builder.reduce("sum", exps, dims, True, hint="sum")
        if log:
            builder.map("{0} - tl.log({1})", shifted, total, name=op.outputs[0], flops=2)
        else:
            builder.map("{0} / {1}", exps, total, name=op.outputs[0])

    return expand


def _logsumexp_of(builder: Builder, x: str, dims: tuple[int, ...], keepdim: bool, name: str | None) -> str:
    top = builder.reduce("max", x, dims, True, hint="max")
    exps = builder.map("tl.exp({0} - {1})", x, top, hint="exp", flops=3)
    total = builder.reduce("sum", exps, dims, keepdim, hint="sum")
    again = top if keepdim else builder.view(top, builder.shape(total), hint="top")
    return builder.map("{1} + tl.log({0})", total, again, name=name, hint="lse", flops=3)


def _logsumexp(builder: Builder, op: Op) -> None:
    x = _tensor(op)
    _floats(builder, op, x)
    dims, keepdim = _dims(builder.shape(x), op.args[1]), bool(_argument(op, 2, "keepdim", False))
    _logsumexp_of(builder, x, dims, keepdim, op.outputs[0])


def _affine(builder: Builder, normal: str, weight: Any, bias: Any, name: str) -> None:
    if isinstance(weight, Ref) and isinstance(bias, Ref):
        builder.map("{0} * {1} + {2}", normal, weight.name, bias.name, name=name, flops=2)
    elif isinstance(weight, Ref):
        builder.map("{0} * {1}", normal, weight.name, name=name)
    elif isinstance(bias, Ref):
        builder.map("{0} + {1}", normal, bias.name, name=name)
    else:
        builder.map("{0}", normal, name=name, flops=0)


def _layer_norm(builder: Builder, op: Op) -> None:
    x = _tensor(op)
    _floats(builder, op, x)
    rank = len(builder.shape(x))
    dims = tuple(range(rank - len(op.args[1]), rank))
    centered, variance = _variance(builder, x, dims, 0)
    eps = operand(_argument(op, 4, "eps", 1e-5))
    normal = builder.map("{0} * (1.0 / tl.sqrt({1} + {2}))", centered, variance, eps, hint="normal", flops=4)
    _affine(builder, normal, _argument(op, 2, "weight"), _argument(op, 3, "bias"), op.outputs[0])


def _rms_norm(builder: Builder, op: Op) -> None:
    x = _tensor(op)
    _floats(builder, op, x)
    rank = len(builder.shape(x))
    dims = tuple(range(rank - len(op.args[1]), rank))
    eps = _argument(op, 3, "eps")
    scale = 1.1920928955078125e-07 if eps is None else eps
    squares = builder.map("{0} * {0}", x, hint="square")
    mean = _mean(builder, squares, dims, True)
    normal = builder.map("{0} * (1.0 / tl.sqrt({1} + {2}))", x, mean, operand(scale), hint="normal", flops=4)
    _affine(builder, normal, _argument(op, 2, "weight"), None, op.outputs[0])


def _group_norm(builder: Builder, op: Op) -> None:
    x, groups = _tensor(op), op.args[1]
    _floats(builder, op, x)
    shape = builder.shape(x)
    counts = groups.values if isinstance(groups, Varying) else tuple(groups for _ in shape[0])
    inner = tuple(size // int(count) for size, count in zip(shape[1], counts, strict=True))
    grouped = (shape[0], tuple(int(count) for count in counts), inner, *shape[2:])
    # The whole normalization happens under the grouped shape; only its result has the input's shape again.
    regrouped = builder.view(x, grouped, hint="grouped")
    dims = tuple(range(2, len(grouped)))
    centered, variance = _variance(builder, regrouped, dims, 0)
    eps = operand(_argument(op, 4, "eps", 1e-5))
    normal = builder.map("{0} * (1.0 / tl.sqrt({1} + {2}))", centered, variance, eps, hint="normal", flops=4)
    flat = builder.view(normal, shape, hint="flat")
    _channels(builder, flat, _argument(op, 2, "weight"), _argument(op, 3, "bias"), op.outputs[0])


def _channels(builder: Builder, x: str, weight: Any, bias: Any, name: str) -> None:
    """x * weight + bias with a weight and bias per channel (dimension 1)."""
    ones = len(builder.shape(x)) - 2
    operands: list[Operand] = [x]
    expression = "{0}"
    for parameter, sign in ((weight, "*"), (bias, "+")):
        if isinstance(parameter, Ref):
            operands.append(builder.trailing(parameter.name, ones))
            expression += f" {sign} {{{len(operands) - 1}}}"
    builder.map(expression, *operands, name=name, flops=2)


def _cross_entropy(builder: Builder, op: Op) -> None:
    x, target = _tensor(op), _tensor(op, 1)
    _floats(builder, op, x)
    shape = builder.shape(x)
    weight, reduction = _argument(op, 2, "weight"), _argument(op, 3, "reduction", 1)
    ignored, smoothing = _argument(op, 4, "ignore_index", -100), _argument(op, 5, "label_smoothing", 0.0)
    if len(shape) != 2 or weight is not None or smoothing or builder.compute(target) != "int" or reduction == 0:
        raise NotCovered("cross entropy other than [N, C] logits, class targets, no weights, mean or sum")
    lse = _logsumexp_of(builder, x, (1,), False, None)
    # The logit of each row's target, picked while the row is read anyway.
    expression = "tl.where({cols} == {1}, {0}, 0.0)"
    picked = builder.map(expression, x, builder.trailing(target, 1), hint="at_target", flops=2)
    chosen = builder.reduce("sum", picked, (1,), False, hint="chosen")
    loss = builder.map("tl.where({2} == {3}, 0.0, {0} - {1})", lse, chosen, target, Number(ignored), hint="loss")
    if reduction == 2:
        builder.reduce("sum", loss, (0,), False, name=op.outputs[0])
        return
    total = builder.reduce("sum", loss, (0,), False, hint="total")
    counted = builder.map("tl.where({0} == {1}, 0.0, 1.0)", target, Number(ignored), hint="counted")
    count = builder.reduce("sum", counted, (0,), False, hint="count")
    builder.map("{0} / {1}", total, count, name=op.outputs[0])


def _linear(builder: Builder, op: Op) -> None:
    x, weight = _tensor(op), _tensor(op, 1)
    _floats(builder, op, x, weight)
    shape = builder.shape(x)
    if len(shape) < 2:
        raise NotCovered("linear of a vector")
    out = (*shape[:-1], builder.shape(weight)[0])
    bias = _argument(op, 2, "bias")
    if isinstance(bias, Ref):
        product_ = builder.dot(x, weight, True, out)
        builder.map("{0} + {1}", product_, bias.name, name=op.outputs[0])
    else:
        builder.dot(x, weight, True, out, name=op.outputs[0])


def _matmul(builder: Builder, op: Op) -> None:
    left, right = _tensor(op), _tensor(op, 1)
    _floats(builder, op, left, right)
    a, b = builder.shape(left), builder.shape(right)
    if len(a) < 2 or len(b) < 2 or (len(b) > 2 and (len(a) != len(b) or a[:-2] != b[:-2])):
        raise NotCovered("matmul with vectors or batches that broadcast")
    builder.dot(left, right, False, (*a[:-1], b[-1]), name=op.outputs[0])


def _addmm(builder: Builder, op: Op) -> None:
    bias, left, right = _tensor(op), _tensor(op, 1), _tensor(op, 2)
    if op.kwargs:
        raise NotCovered("addmm with beta or alpha")
    _floats(builder, op, bias, left, right)
    shape = (*builder.shape(left)[:-1], builder.shape(right)[-1])
    builder.map("{0} + {1}", builder.dot(left, right, False, shape), bias, name=op.outputs[0])


def _reshape(builder: Builder, op: Op) -> None:
    out = builder.graph.values[op.outputs[0]]
    builder.view(_tensor(op), out.shape, name=op.outputs[0])


def _batch_norm_eval(builder: Builder, op: Op) -> None:
    x, weight, bias, mean, var, training, _, eps = op.args[:8]
    if training or not isinstance(mean, Ref) or not isinstance(var, Ref):
        raise NotCovered("batch norm in training mode updates its statistics")
    _floats(builder, op, x.name)
    ones = len(builder.shape(x.name)) - 2
    operands = [x.name, builder.trailing(mean.name, ones), builder.trailing(var.name, ones), operand(eps)]
    normal = builder.map("({0} - {1}) * (1.0 / tl.sqrt({2} + {3}))", *operands, hint="normal", flops=5)
    _channels(builder, normal, weight, bias, op.outputs[0])


COMPOSITES: dict[str, Expand] = {
    "aten.add.Tensor": _add("+"),
    "aten.sub.Tensor": _add("-"),
    "aten.rsub.Scalar": _rsub,
    "aten.gelu.default": _gelu,
    "aten.pow.Tensor_Scalar": _pow,
    "aten.clamp.default": _clamp,
    "aten.dropout.default": _identity_if(lambda op: not op.args[2] or op.args[1] == 0.0),
    "aten.sum.default": _reduction("sum", 1),
    "aten.sum.dim_IntList": _reduction("sum"),
    "aten.mean.default": _reduction("mean", 1),
    "aten.mean.dim": _reduction("mean"),
    "aten.amax.default": _reduction("max"),
    "aten.amin.default": _reduction("min"),
    "aten.max.default": _reduction("max"),
    "aten.min.default": _reduction("min"),
    "aten.argmax.default": _reduction("argmax"),
    "aten.argmin.default": _reduction("argmin"),
    "aten.max.dim": _extreme("max"),
    "aten.min.dim": _extreme("min"),
    "aten.var.dim": _var(False),
    "aten.var.correction": _var(False),
    "aten.std.dim": _var(True),
    "aten.std.correction": _var(True),
    "aten.softmax.int": _softmax(False),
    "aten.log_softmax.int": _softmax(True),
    "aten.logsumexp.default": _logsumexp,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    "aten.batch_norm.default": _batch_norm_eval,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.flatten.using_ints": _reshape,
    "aten.unsqueeze.default": _reshape,
    "aten.squeeze.dim": _reshape,
}
