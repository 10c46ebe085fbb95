"""identities: ops whose result is their operand, or that of an op before them.

Proofs. The sum, mean, maximum and log of the summed exponentials of one number are that number. x + 0, x * 1, x / 1, -(-x)
are x. Dropout that drops nothing gives its operand. A permutation and its opposite leave a tensor as it was. Two calls of
the same function with the same arguments give the same, if it draws no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.algebra.turns import TURNS, order_of
from mtmc.rewrite.graph import CONSTANT, Graph, Op, Ref, Varying, is_one
from mtmc.rewrite.operators.steps import argument
from mtmc.rewrite.operators.table import FREE

OVER_ONE = {
    "aten.sum.dim_IntList": "sum",
    "aten.mean.dim": "mean",
    "aten.amax.default": "maximum",
    "aten.amin.default": "minimum",
    "aten.max.dim": "maximum",
    "aten.min.dim": "minimum",
    "aten.logsumexp.default": "log of the summed exponentials",
    "aten.prod.dim_int": "product",
}
"""Reductions that leave one element as it is; their dimensions are the second argument."""
_NEUTRAL = {
    "aten.add.Tensor": 0,
    "aten.sub.Tensor": 0,
    "aten.mul.Tensor": 1,
    "aten.div.Tensor": 1,
    "aten.pow.Tensor_Scalar": 1,
}
_RANDOM = ("dropout", "rand", "bernoulli", "multinomial", "normal")
_COPIES = ("aten.clone.default", "aten.contiguous.default", "aten.to.dtype", "aten._to_copy.default")


def reduced_dims(graph: Graph, op: Op) -> tuple[int, ...]:
    """The dimensions that a reduction goes over, from the first; () where they are not plain numbers."""
    rank = len(graph.values[op.args[0].name].shape)
    dims = argument(op, 1, "dim")
    dims = tuple(range(rank)) if dims is None or dims == () else dims if isinstance(dims, tuple) else (dims,)
    return () if any(isinstance(dim, Varying) for dim in dims) else tuple(sorted(dim % rank for dim in dims))


def over_one(graph: Graph, op: Op) -> bool:
    """Whether an op is a reduction that goes over one element wherever the reference was exported."""
    if op.target not in OVER_ONE or not isinstance(op.args[0], Ref) or not graph.values[op.args[0].name].shape:
        return False
    dims = reduced_dims(graph, op)
    return bool(dims) and all(is_one(graph.values[op.args[0].name].shape[dim]) for dim in dims)


def _one_element(graph: Graph, op: Op) -> Finding | None:
    if not over_one(graph, op):
        return None
    edit = Editor(graph, op)
    by = edit.shaped(op.args[0], graph.values[op.outputs[0]].shape)
    return edit.finish(f"{op.name}, the {OVER_ONE[op.target]} of one element, is that element", (op.name,), by)


def _neutral(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _NEUTRAL or len(op.args) != 2 or not isinstance(op.args[0], Ref):
        return None
    number = op.args[1]
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != _NEUTRAL[op.target]:
        return None
    return Editor(graph, op).finish(f"{op.name} with {number} changes nothing", (op.name,), op.args[0])


def _drops_nothing(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.dropout.default" or (op.args[2] and op.args[1] != 0.0):
        return None
    return Editor(graph, op).finish(f"{op.name} drops nothing", (op.name,), op.args[0])


def _copy(graph: Graph, op: Op) -> Finding | None:
    """A copy of what has the same type and order already. Nothing writes to a value, so the original does as well."""
    if op.target not in _COPIES or not isinstance(op.args[0], Ref):
        return None
    return Editor(graph, op).finish(f"{op.name} copies what is in its order already", (op.name,), op.args[0])


def _twice(graph: Graph, op: Op) -> Finding | None:
    first = producer(graph, op.args[0] if op.args else None)
    if first is None or not _undoes(graph, first, op):
        return None
    return Editor(graph, op).finish(f"{op.name} undoes {first.name}", (first.name, op.name), first.args[0])


def _undoes(graph: Graph, first: Op, second: Op) -> bool:
    if first.target == second.target == "aten.neg.default":
        return True
    order, then = order_of(graph, first), order_of(graph, second)
    return order is not None and then is not None and [order[dim] for dim in then] == list(range(len(order)))


def turned_back(graph: Graph, op: Op) -> Finding | None:
    """A tensor whose dimensions come in the order that they had before."""
    return _twice(graph, op) if op.target in TURNS else None


def _same_again(graph: Graph, op: Op) -> Finding | None:
    if op.target == CONSTANT or op.target in FREE or any(word in op.target for word in _RANDOM) or len(op.outputs) > 1:
        return None
    for other in graph.ops:
        if other.name == op.name:
            return None
        if (other.target, other.args, other.kwargs) == (op.target, op.args, op.kwargs):
            by = Ref(other.outputs[0])
            return Editor(graph, op).finish(f"{op.name} is {other.name} again", (op.name,), by)
    return None


def _guarded(rule: Callable[[Graph, Op], Finding | None]) -> Rule:
    """A rule that is asked only of ops with a known result."""

    def asked(graph: Graph, op: Op) -> Finding | None:
        known: Any = op.outputs and op.outputs[0] in graph.values
        return rule(graph, op) if known else None

    return asked


IDENTITIES: tuple[Rule, ...] = tuple(
    _guarded(rule) for rule in (_one_element, _neutral, _drops_nothing, _copy, _twice, _same_again)
)
