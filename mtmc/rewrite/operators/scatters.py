"""scatters: tensors changed at places that another tensor holds: scatter, index_put, index_add, gradients of embeddings; or
that a mask holds at.

Of several elements for one place torch leaves it open which is kept where they are not combined, and in which order floats
are added up; so do the kernels.
"""

from __future__ import annotations

import math
from typing import Any

from mtmc.rewrite.body import Node, NotCovered, Number, Operand, broadcast, folded, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Shape, product
from mtmc.rewrite.index_maps import Expanded, Looked
from mtmc.rewrite.operators.lookups import index_of
from mtmc.rewrite.operators.steps import argument, dim_of, result_of, tensor
from mtmc.rewrite.operators.typed import kind_of, result_dtype, triton_type, typed

_REDUCTIONS = {"sum": "add", "add": "add", "amax": "amax", "amin": "amin"}
"""What torch calls how elements are combined, and what a scatter does."""


def _scatter(
    builder: Builder, op: Op, operation: str, source: Operand, places: list[str], index: Looked, space: Shape
) -> None:
    """Of an op whose first argument is what is changed."""
    dtype = result_dtype(builder, op)
    base = builder.map("{0}", typed(builder, tensor(op), dtype), compute=kind_of(dtype), hint="base", flops=0)
    builder.scatter(operation, base, typed(builder, source, dtype), places, index, space, op.outputs[0])


def _along(builder: Builder, op: Op, operation: str, source: Operand) -> None:
    """What `gather` reads from is where this goes to."""
    which = index_of(builder, op, op.args[2])
    dim = dim_of(op, 1, len(builder.shape(tensor(op))))
    space = builder.shape(which)
    _scatter(builder, op, operation, source, [which], Looked((dim,), 0, len(space), aligned=True), space)


def _by_dimension(named: str, operation: str = "") -> Expand:
    """named: of the argument with what is written. operation: where no argument says it."""

    def expand(builder: Builder, op: Op) -> None:
        wanted = operation or str(argument(op, 4, "reduce"))
        if wanted not in ("set", *_REDUCTIONS):
            raise NotCovered(f"{op.target} by {wanted!r}")
        if not argument(op, 5, "include_self", True):
            raise NotCovered(f"{op.target} without what was there before")
        _along(builder, op, _REDUCTIONS.get(wanted, wanted), operand(argument(op, 3, named)))

    return expand


def _by_rows(operation: str, named: str) -> Expand:
    """Slices of a dimension, at indices of one dimension."""

    def expand(builder: Builder, op: Op) -> None:
        x, which, source = tensor(op), index_of(builder, op, op.args[2]), folded(builder.graph, operand(op.args[3]))
        shape, counts = builder.shape(x), builder.shape(which)
        if len(counts) != 1 or not shape:
            raise NotCovered(f"{op.target} by a number")
        dim, alpha = dim_of(op, 1, len(shape)), operand(argument(op, 4, "alpha", 1))
        if operation == "add" and alpha != Number(1):
            dtype = result_dtype(builder, op)
            value = typed(builder, source, dtype)
            source = builder.map("{0} * {1}", value, typed(builder, alpha, dtype), compute=kind_of(dtype), hint="times")
        space = (*shape[:dim], counts[0], *shape[dim + 1 :])
        _scatter(builder, op, operation, source, [which], Looked((dim,), dim, 1), space)

    return expand


def _index_put(builder: Builder, op: Op) -> None:
    """x[i, :, j] = values, or += values; a mask picks out of x and one value."""
    x, given, values = tensor(op), op.args[1], folded(builder.graph, operand(op.args[2]))
    dims = tuple(dim for dim, each in enumerate(given) if each is not None)
    first = given[dims[0]]
    if isinstance(first, Ref) and builder.compute(first.name) == "bool":
        _where(builder, op, dims, first.name, values)
        return
    names = [index_of(builder, op, given[dim]) for dim in dims]
    shape = builder.shape(x)
    together = broadcast([builder.shape(name) for name in names])
    start = dims[0] if dims == tuple(range(dims[0], dims[-1] + 1)) else 0
    left = [size for dim, size in enumerate(shape) if dim not in dims]
    space = (*left[:start], *together, *left[start:])
    looked = Looked(dims, start, len(together), negative=True)
    _scatter(builder, op, "add" if argument(op, 3, "accumulate", False) else "set", values, names, looked, space)


def _where(builder: Builder, op: Op, dims: tuple[int, ...], mask: str, value: Operand) -> None:
    """x[mask] = a number. Raises: NotCovered for several values, of which the mask's count says how many there are."""
    shape, wide = result_of(builder, op), builder.shape(mask)
    one = builder.shape(value)
    if dims != (0,) or any(set(size) != {1} for size in one) or argument(op, 3, "accumulate", False):
        raise NotCovered(f"{op.target} by a mask, of as many values as it has places")
    ones = ((1,) * len(builder.graph.variants),) * (len(shape) - len(wide))
    column = builder.view(mask, (*wide, *ones), hint="mask") if ones else mask
    if isinstance(value, str) and one:
        value = builder.view(value, (), hint="value")
    dtype = result_dtype(builder, op)
    old, new = typed(builder, tensor(op), dtype), typed(builder, value, dtype)
    builder.map("tl.where({0}, {1}, {2})", column, new, old, compute=kind_of(dtype), name=op.outputs[0])


def _masked(builder: Builder, op: Op) -> None:
    """x where a mask does not hold, elsewhere the numbers of the source one after the other."""
    dtype, shape = result_dtype(builder, op), result_of(builder, op)
    mask, source = typed(builder, tensor(op, 1), "bool"), tensor(op, 2)
    if not isinstance(mask, str) or builder.shape(source) == ():
        raise NotCovered(f"{op.target} by or from a number")
    if builder.shape(mask) != shape:
        mask = builder.index("expand", Expanded(), (mask,), shape)
    flat = builder.view(source, (product(builder.shape(source)),), hint="source")
    looked = Looked((0,), 0, len(shape))
    new = builder.index("lookup", looked, (flat, builder.rank(mask)), shape, fill=math.nan)
    old = typed(builder, tensor(op), dtype)
    builder.map("tl.where({0}, {1}, {2})", mask, new, old, compute=kind_of(dtype), name=op.outputs[0])


def _embedding_backward(builder: Builder, op: Op) -> None:
    """Sums of gradients by the row that they are of; those of the padding's row are left out."""
    grad, which = tensor(op), index_of(builder, op, op.args[1])
    padding, by_frequency = op.args[3], op.args[4]
    if by_frequency:
        raise NotCovered(f"{op.target} by how often a row is read")
    dtype, shape = result_dtype(builder, op), result_of(builder, op)
    zeros = Node(
        f"{op.outputs[0]}_zeros", "map", f"tl.cast({{0}}, {triton_type(dtype)})", (Number(0.0),), shape, "float"
    )
    builder.nodes[zeros.name] = zeros
    source: Any = grad
    if padding != -1:
        rows = builder.shape(which)
        ones = ((1,) * len(builder.graph.variants),)
        column = builder.view(which, (*rows, *ones), hint="column")
        source = builder.map("tl.where({0} == {1}, 0.0, {2})", column, operand(padding), grad, hint="kept")
    index = Looked((0,), 0, len(builder.shape(which)))
    builder.scatter("add", zeros.name, source, [which], index, builder.shape(grad), op.outputs[0])


SCATTERS: dict[str, Expand] = {
    "aten.scatter.src": _by_dimension("src", "set"),
    "aten.scatter.value": _by_dimension("value", "set"),
    "aten.scatter.reduce": _by_dimension("src"),
    "aten.scatter.value_reduce": _by_dimension("value"),
    "aten.scatter_add.default": _by_dimension("src", "add"),
    "aten.scatter_reduce.two": _by_dimension("src"),
    "aten.index_add.default": _by_rows("add", "source"),
    "aten.index_copy.default": _by_rows("set", "source"),
    "aten.index_fill.int_Scalar": _by_rows("set", "value"),
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.masked_scatter.default": _masked,
    "aten.embedding_dense_backward.default": _embedding_backward,
}
