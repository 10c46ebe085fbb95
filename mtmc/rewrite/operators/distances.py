"""distances: between the rows of two matrices, or each two rows of one: a norm of the difference for each pair."""

from __future__ import annotations

import math

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Shape
from mtmc.rewrite.index_maps import Looked
from mtmc.rewrite.operators.steps import argument, floats, norm_of, result_of, size_operand, tensor


def _cdist(builder: Builder, op: Op) -> None:
    left, right, order = tensor(op), tensor(op, 1), argument(op, 2, "p", 2.0)
    floats(builder, op, left, right)
    ones = ((1,) * len(builder.graph.variants),)
    one, other = builder.shape(left), builder.shape(right)
    rows = builder.view(left, (*one[:-1], *ones, *one[-1:]), hint="left")
    columns = builder.view(right, (*other[:-2], *ones, *other[-2:]), hint="right")
    _norm(builder, op, rows, columns, order)


def _norm(builder: Builder, op: Op, left: str, right: str, order: object) -> None:
    if not isinstance(order, (int, float)):
        raise NotCovered(f"{op.target} of an order that differs between shapes")
    apart = builder.map("{0} - {1}", left, right, hint="apart")
    norm_of(builder, apart, order, (len(builder.shape(apart)) - 1,), False, op.outputs[0])


def _pdist(builder: Builder, op: Op) -> None:
    """Pairs in the order (0, 1), (0, 2), ..., (1, 2), ...: row i begins with pair i (2 n - i - 1) / 2."""
    x = tensor(op)
    floats(builder, op, x)
    shape, pairs = builder.shape(x), result_of(builder, op)
    number = builder.place(1, pairs, "pair", "int64")
    count = builder.map("{0} * 0 + {1}", number, size_operand(shape[0]), compute="int", hint="count")
    first = _first_of_pair(builder, number, count)
    second = builder.map(f"{{0}} - {_BEGIN} + {{1}} + 1", number, first, count, compute="int", hint="second")
    space: Shape = (pairs[0], shape[1])
    looked = Looked((0,), 0, 1)
    one, other = (builder.index("row", looked, (x, each), space, fill=math.nan) for each in (first, second))
    _norm(builder, op, one, other, argument(op, 1, "p", 2.0))


_BEGIN = "{1} * (2 * {2} - {1} - 1) // 2"
"""The first pair of row {1} of {2}."""


def _first_of_pair(builder: Builder, number: str, count: str) -> str:
    """The row that a pair is of, by the root of a quadratic equation, and one more or less where that was rounded."""
    root = "tl.sqrt(((2 * {1} - 1) * (2 * {1} - 1) - 8 * {0}).to(tl.float32))"
    guess = builder.map(
        f"(((2 * {{1}} - 1).to(tl.float32) - {root}) * 0.5).to(tl.int64)", number, count, compute="int", hint="guess"
    )
    lower = f"tl.where({_BEGIN} > {{0}}, {{1}} - 1, {{1}})"
    low = builder.map(lower, number, guess, count, compute="int", hint="low")
    higher = "tl.where(({1} + 1) * (2 * {2} - {1} - 2) // 2 <= {0}, {1} + 1, {1})"
    return builder.map(higher, number, low, count, compute="int", hint="first")


DISTANCES: dict[str, Expand] = {
    "aten._cdist_forward.default": _cdist,
    "aten.cdist.default": _cdist,
    "aten.pdist.default": _pdist,
    "aten._pdist_forward.default": _pdist,
}
