"""orders: elements along a dimension in their order: sort, argsort, topk.

As torch has it, NaN is the largest of all, and the zeros of both signs are equal. Equal elements keep their order, also in
a topk, where torch leaves it open which of them come first.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.steps import argument, dims_of, result_of, tensor
from mtmc.rewrite.operators.typed import typed


def _ordered(builder: Builder, op: Op, dim: Any, falling: bool, outputs: dict[str, str]) -> None:
    """outputs: names of the results by what they are, "values" or "places"."""
    x = typed(builder, tensor(op), builder.graph.values[tensor(op)].dtype)
    shape = builder.shape(x)
    if not shape or not isinstance(x, str):
        raise NotCovered(f"{op.target} of a number")
    (axis,) = dims_of(shape, dim)
    for what, name in outputs.items():
        if name in builder.graph.used:
            builder.order(what, x, axis, result_of(builder, op, op.outputs.index(name)), falling, name)


def _sort(dim_at: int) -> Expand:
    """dim_at: where the dimension stands among the arguments; whether the order is descending stands behind it."""

    def expand(builder: Builder, op: Op) -> None:
        falling = bool(argument(op, dim_at + 1, "descending", False))
        outputs = {"values": op.outputs[0], "places": op.outputs[1]}
        _ordered(builder, op, argument(op, dim_at, "dim", -1), falling, outputs)

    return expand


def _argsort(builder: Builder, op: Op) -> None:
    falling = bool(argument(op, 2, "descending", False))
    _ordered(builder, op, argument(op, 1, "dim", -1), falling, {"places": op.outputs[0]})


def _stable_argsort(builder: Builder, op: Op) -> None:
    named = {name: op.kwargs[name] for name in ("dim", "descending") if name in op.kwargs}
    _ordered(builder, op, named.get("dim", -1), bool(named.get("descending", False)), {"places": op.outputs[0]})


def _stable_sort(builder: Builder, op: Op) -> None:
    outputs = {"values": op.outputs[0], "places": op.outputs[1]}
    _ordered(builder, op, op.kwargs.get("dim", -1), bool(op.kwargs.get("descending", False)), outputs)


def _topk(builder: Builder, op: Op) -> None:
    if not argument(op, 4, "sorted", True):
        raise NotCovered(f"{op.target} that leaves the order of its results open")
    outputs = {"values": op.outputs[0], "places": op.outputs[1]}
    _ordered(builder, op, argument(op, 2, "dim", -1), bool(argument(op, 3, "largest", True)), outputs)


ORDERS: dict[str, Expand] = {
    "aten.sort.default": _sort(1),
    "aten.sort.stable": _stable_sort,
    "aten.argsort.default": _argsort,
    "aten.argsort.stable": _stable_argsort,
    "aten.topk.default": _topk,
}
