"""reductions: sums, products, means, extremes and their places, of floats, whole numbers and masks.

Whole numbers are added up and compared in int64. Masks become 0.0 and 1.0, of which the largest says whether any holds.
"""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered, Operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.steps import argument, count_of, dims_of, tensor
from mtmc.rewrite.operators.typed import kind_of, result_dtype, typed


def _wide(builder: Builder, item: Operand, kind: str) -> str:
    """An operand in what reductions compute in: fp32, or int64."""
    if kind == "float":
        found = builder.floating(item)
    else:
        found = typed(builder, item, "int64")
        if isinstance(found, str) and found not in builder.nodes:
            found = builder.map("{0}", found, compute="int", hint="whole", flops=0)
    if not isinstance(found, str):
        raise NotCovered("a reduction of a number")
    return found


def _finish(builder: Builder, found: str, dtype: str, name: str) -> None:
    """What a reduction found, in the dtype of its result."""
    if kind_of(dtype) == "bool":
        builder.map("{0} != 0", found, compute="bool", name=name)
    elif kind_of(dtype) == "float":
        builder.map("{0}", builder.floating(found), name=name, flops=0)
    else:
        builder.map(f"{{0}}.to(tl.{dtype})", found, compute="int", name=name, flops=0)


def _reduction(operation: str, dim_at: int = 1) -> Expand:
    """dim_at: where the dimensions stand among the arguments; the result's dtype may stand two behind."""

    def expand(builder: Builder, op: Op) -> None:
        x, dtype = tensor(op), result_dtype(builder, op)
        dims = dims_of(builder.shape(x), argument(op, dim_at, "dim"))
        keepdim = bool(argument(op, dim_at + 1, "keepdim", False))
        if dtype == "bool":  # the largest or smallest of masks
            _of_masks(builder, op, operation, dims, keepdim)
            return
        kind = kind_of(builder.graph.values[x].dtype if operation in ("amax", "amin") else dtype)
        operand = _wide(builder, x, kind)
        if kind == "float" and operation != "mean":
            builder.reduce(operation, operand, dims, keepdim, name=op.outputs[0])
            return
        found = builder.reduce("sum" if operation == "mean" else operation, operand, dims, keepdim, hint="sum")
        if operation == "mean":
            builder.map("{0} / {1}", found, count_of(builder, x, dims), name=op.outputs[0], hint="mean")
        else:
            _finish(builder, found, dtype, op.outputs[0])

    return expand


def _of_masks(builder: Builder, op: Op, operation: str, dims: tuple[int, ...], keepdim: bool) -> None:
    mask = typed(builder, tensor(op), "bool")
    each = builder.map("tl.where({0}, 1.0, 0.0)", mask, hint="each")
    operation = "max" if operation == "amax" else operation  # there is no NaN to look for
    found = builder.reduce(operation, each, dims, keepdim, hint="found")
    builder.map("{0} > 0.0", found, compute="bool", name=op.outputs[0])


def _logical(operation: str) -> Expand:
    """Whether any ("amax") or all ("amin") values differ from 0."""

    def expand(builder: Builder, op: Op) -> None:
        dims = dims_of(builder.shape(tensor(op)), argument(op, 1, "dim"))
        if result_dtype(builder, op) != "bool":
            raise NotCovered(f"{op.target} of bytes")
        _of_masks(builder, op, operation, dims, bool(argument(op, 2, "keepdim", False)))

    return expand


def _place(operation: str) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        dims = dims_of(builder.shape(x), argument(op, 1, "dim"))
        operand = _wide(builder, x, kind_of(builder.graph.values[x].dtype))
        builder.reduce(operation, operand, dims, bool(argument(op, 2, "keepdim", False)), name=op.outputs[0])

    return expand


def _extreme(which: str) -> Expand:
    """The largest or smallest and its place."""

    def expand(builder: Builder, op: Op) -> None:
        x, dtype = tensor(op), result_dtype(builder, op)
        dims, keepdim = dims_of(builder.shape(x), op.args[1]), bool(argument(op, 2, "keepdim", False))
        kind = kind_of(dtype)
        operand = _wide(builder, x, kind)
        if kind == "float":
            builder.reduce(f"a{which}", operand, dims, keepdim, name=op.outputs[0])
        else:
            _finish(builder, builder.reduce(f"a{which}", operand, dims, keepdim, hint=which), dtype, op.outputs[0])
        builder.reduce(f"arg{which}", operand, dims, keepdim, name=op.outputs[1])

    return expand


REDUCTIONS: dict[str, Expand] = {
    "aten.sum.default": _reduction("sum", 9),
    "aten.sum.dim_IntList": _reduction("sum"),
    "aten.prod.default": _reduction("prod", 9),
    "aten.prod.dim_int": _reduction("prod"),
    "aten.mean.default": _reduction("mean", 9),
    "aten.mean.dim": _reduction("mean"),
    "aten.amax.default": _reduction("amax"),
    "aten.amin.default": _reduction("amin"),
    "aten.max.default": _reduction("amax", 9),
    "aten.min.default": _reduction("amin", 9),
    "aten.argmax.default": _place("argmax"),
    "aten.argmin.default": _place("argmin"),
    "aten.max.dim": _extreme("max"),
    "aten.min.dim": _extreme("min"),
    **{f"aten.any.{kind}": _logical("amax") for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": _logical("amin") for kind in ("default", "dim", "dims")},
}
