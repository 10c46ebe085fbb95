"""products: linear layers and matrix products as steps."""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Shape, is_one
from mtmc.rewrite.index_maps import Permuted
from mtmc.rewrite.operators.einsums import einsum
from mtmc.rewrite.operators.steps import argument, floats, tensor
from mtmc.rewrite.operators.typed import kind_of


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
    shared = len(a) == 2 < len(b)  # one matrix times each of many
    if len(a) < 2 or len(b) < 2 or not (shared or _repeats(b[:-2], a[:-2])):
        raise NotCovered("matmul with vectors, or a batch of left operands that broadcasts")
    matrix, transposed = _matrix(builder, right)
    builder.dot(left, matrix, transposed, (*(b[:-2] if shared else ()), *a[:-1], b[-1]), name=op.outputs[0])


def _repeats(right: Shape, left: Shape) -> bool:
    """Whether the dimensions of a batch of right operands are the last ones of that of left ones, or have one matrix for
    all along them."""
    own = left[len(left) - len(right) :]
    return len(right) <= len(left) and all(is_one(size) or size == each for size, each in zip(right, own, strict=True))


def _addmm(builder: Builder, op: Op) -> None:
    bias, left, right = tensor(op), tensor(op, 1), tensor(op, 2)
    beta, alpha = operand(op.kwargs.get("beta", 1)), operand(op.kwargs.get("alpha", 1))
    floats(builder, op, bias, left, right)
    shape = (*builder.shape(left)[:-1], builder.shape(right)[-1])
    matrix, transposed = _matrix(builder, right)
    product_ = builder.dot(left, matrix, transposed, shape)
    if op.kwargs:
        expression = "{2} * {0} + {3} * {1}"
        builder.map(expression, product_, bias, alpha, beta, name=op.outputs[0], flops=3)
    else:
        builder.map("{0} + {1}", product_, bias, name=op.outputs[0])


def _scaled_mm(builder: Builder, op: Op) -> None:
    """Numbers of 8 bits, with one scale for each operand, or for each of its rows and columns."""
    left, right = tensor(op), tensor(op, 1)
    floats(builder, op, left, right)
    if argument(op, 5, "scale_result") is not None:
        raise NotCovered("a product whose result is scaled, too")
    kind_of(builder.graph.values[op.outputs[0]].dtype)
    matrix, transposed = _matrix(builder, right)
    a, b = builder.shape(left), builder.shape(right)
    found = builder.dot(left, matrix, transposed, (*a[:-1], b[-1]))
    for at, name in ((2, "scale_a"), (3, "scale_b")):
        scale = argument(op, at, name)
        if not isinstance(scale, Ref) or builder.compute(scale.name) != "float":
            raise NotCovered(f"{name} is no floating tensor")
        shape = builder.shape(scale.name)
        whole = all(is_one(size) for size in shape)
        if not whole and (len(shape) != 2 or not is_one(shape[1 if at == 2 else 0])):
            raise NotCovered(f"{name} for blocks")
        found = builder.map("{0} * {1}", found, scale.name, hint="scaled")
    bias = argument(op, 4, "bias")
    if isinstance(bias, Ref):
        builder.map("{0} + {1}", found, bias.name, name=op.outputs[0])
    else:
        builder.map("{0}", found, name=op.outputs[0], flops=0)


def _int_mm(builder: Builder, op: Op) -> None:
    """Whole numbers of 8 bits, added up in 32."""
    left, right = tensor(op), tensor(op, 1)
    if any(value in builder.nodes or builder.graph.values[value].dtype != "int8" for value in (left, right)):
        raise NotCovered("a product of whole numbers that a kernel makes, or of others than int8")
    matrix, transposed = _matrix(builder, right)
    shape = (builder.shape(left)[0], builder.shape(right)[1])
    builder.dot(left, matrix, transposed, shape, name=op.outputs[0], compute="int")


def _grouped_mm(builder: Builder, op: Op) -> None:
    """Rows in groups, each times a matrix of its own; without groups a batch of products."""
    left, right, offsets = tensor(op), tensor(op, 1), argument(op, 2, "offs")
    floats(builder, op, left, right)
    if argument(op, 3, "bias") is not None or argument(op, 4, "out_dtype") is not None:
        raise NotCovered("grouped products with a bias, or of another type")
    a, b = builder.shape(left), builder.shape(right)
    if not isinstance(offsets, Ref):
        _matmul(builder, op)
        return
    if (len(a), len(b)) != (2, 3) or builder.compute(offsets.name) != "int":
        raise NotCovered("groups of anything but the rows of the left operand")
    builder.dot(left, right, False, (a[0], b[-1]), name=op.outputs[0], offsets=offsets.name)


def _matrix(builder: Builder, value: str) -> tuple[str, bool]:
    """A right operand as it is read: itself, or what it is the transpose of (and True), whose rows lie in memory as products
    like them."""
    under = _under_transpose(builder, value)
    return (value, False) if under is None else (under, True)


def _under_transpose(builder: Builder, value: str) -> str | None:
    """What a matrix is the transpose of, where that is at hand whatever becomes of the matrix; else None."""
    node = builder.nodes.get(value)
    if node is not None:
        return node.reads()[0] if node.kind == "index" and node.index == Permuted((1, 0)) else None
    op = builder.graph.by_name.get(builder.graph.producer.get(value, ""))
    swaps = op is not None and op.target in _SWAPS and (len(op.args) < 3 or set(op.args[1:3]) in ({0, 1}, {-1, -2}))
    if op is None or not swaps or not isinstance(op.args[0], Ref) or op.args[0].name in builder.graph.producer:
        return None
    return op.args[0].name


_SWAPS = ("aten.t.default", "aten.transpose.int", "aten.numpy_T.default", "aten.mT.default")

PRODUCTS: dict[str, Expand] = {
    "aten._scaled_mm.default": _scaled_mm,
    "aten._int_mm.default": _int_mm,
    "aten._grouped_mm.default": _grouped_mm,
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.einsum.default": einsum,
}
