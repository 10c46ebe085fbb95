"""products: linear layers and matrix products as steps."""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref
from mtmc.rewrite.operators.einsums import einsum
from mtmc.rewrite.operators.steps import argument, floats, tensor


def _linear(builder: Builder, op: Op) -> None:
    x, weight = tensor(op), tensor(op, 1)
    floats(builder, op, x, weight)
    shape = builder.shape(x)
    if len(shape) < 2:
        raise NotCovered("linear of a vector")
    out = (*shape[:-1], builder.shape(weight)[0])
    bias = argument(op, 2, "bias")
    if isinstance(bias, Ref):
        product_ = builder.dot(x, weight, True, out)
        builder.map("{0} + {1}", product_, bias.name, name=op.outputs[0])
    else:
        builder.dot(x, weight, True, out, name=op.outputs[0])


def _matmul(builder: Builder, op: Op) -> None:
    left, right = tensor(op), tensor(op, 1)
    floats(builder, op, left, right)
    a, b = builder.shape(left), builder.shape(right)
    if len(a) > 1 and len(b) == 1:  # rows against one vector: elementwise work and a sum
        each = builder.map("{0} * {1}", left, right, hint="each")
        builder.reduce("sum", each, (len(a) - 1,), False, name=op.outputs[0])
        return
    if len(a) < 2 or len(b) < 2 or (len(b) > 2 and (len(a) != len(b) or a[:-2] != b[:-2])):
        raise NotCovered("matmul with vectors or batches that broadcast")
    builder.dot(left, right, False, (*a[:-1], b[-1]), name=op.outputs[0])


def _addmm(builder: Builder, op: Op) -> None:
    bias, left, right = tensor(op), tensor(op, 1), tensor(op, 2)
    beta, alpha = operand(op.kwargs.get("beta", 1)), operand(op.kwargs.get("alpha", 1))
    floats(builder, op, bias, left, right)
    shape = (*builder.shape(left)[:-1], builder.shape(right)[-1])
    product_ = builder.dot(left, right, False, shape)
    if op.kwargs:
        expression = "{2} * {0} + {3} * {1}"
        builder.map(expression, product_, bias, alpha, beta, name=op.outputs[0], flops=3)
    else:
        builder.map("{0} + {1}", product_, bias, name=op.outputs[0])


PRODUCTS: dict[str, Expand] = {
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.einsum.default": einsum,
}
