"""turns: ops that put the dimensions of a tensor in another order, and no element elsewhere among them."""

from __future__ import annotations

from mtmc.rewrite.graph import Graph, Op, Ref

TURNS = (
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten.numpy_T.default",
    "aten.mT.default",
)


def order_of(graph: Graph, op: Op) -> list[int] | None:
    """The dimensions of an op's operand in the order that its result has them; None for another op, or what is not known."""
    if op.target not in TURNS or not isinstance(op.args[0], Ref) or op.args[0].name not in graph.values:
        return None
    rank = len(graph.values[op.args[0].name].shape)
    if op.target == "aten.permute.default":
        return [dim % rank for dim in op.args[1]]
    order = list(range(rank))
    if op.target in ("aten.t.default", "aten.numpy_T.default"):
        return order[::-1]
    one, other = (dim % rank for dim in (op.args[1:3] if op.target == "aten.transpose.int" else (-2, -1)))
    order[one], order[other] = other, one
    return order
