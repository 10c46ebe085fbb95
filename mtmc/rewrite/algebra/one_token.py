"""one_token: attention of one token, written as sums over products, as attention with one query.

Proof. It is the definition. The score of a key is the sum over the width of its product with the query, times a number; the
result is the sum over the keys of their values times the softmax of the scores. Both sums may be written as such, or as
Einstein sums.

What it is for: a step of decoding over a cache, in which every batch and head has a query of its own, so that no product of
matrices is to be seen. As one call it is one kernel, which shares long rows of keys among programs and reads them in pages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mtmc.rewrite.algebra.edit import CASTS, SOFTMAXES, Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref, Varying
from mtmc.rewrite.operators.steps import argument

_SUM, _PRODUCT, _EINSUM = "aten.sum.dim_IntList", "aten.mul.Tensor", "aten.einsum.default"
_RANK = 4
"""Of keys and values: two dimensions of the batch, in any order with that of the keys, and the width behind them."""


class _Sum(NamedTuple):
    """A sum over products of a smaller tensor and a whole one. missing: the dimension of the whole one that the smaller one
    lacks. over: the dimension that is summed. ops: that make it."""

    small: Ref
    whole: Ref
    missing: int
    over: int
    ops: tuple[str, ...]


def _attends(graph: Graph, op: Op) -> Finding | None:
    outer = _sum_of(graph, op)
    if outer is None or outer.missing != _RANK - 1 or outer.over >= outer.missing:
        return None
    chain = _Chain(graph, outer.small)
    chain.skip(CASTS)
    softmax = chain.take(SOFTMAXES)
    if softmax is None or argument(softmax, 1, "dim") not in (outer.over, outer.over - _RANK + 1):
        return None
    chain.skip(CASTS)
    factor = chain.factor()
    inner = _sum_of(graph, producer(graph, chain.at))
    if inner is None or inner.over != _RANK - 1 or inner.missing != outer.over:
        return None
    return _found(graph, op, outer, inner, factor, (*inner.ops, *chain.ops, *outer.ops))


def _found(
    graph: Graph, op: Op, outer: _Sum, inner: _Sum, factor: float | Varying, ops: tuple[str, ...]
) -> Finding | None:
    query, key, value, made = (
        graph.values[name] for name in (inner.small.name, inner.whole.name, outer.whole.name, op.outputs[0])
    )
    alike = {each.dtype for each in (query, key, value, made)} == {made.dtype} and made.is_float
    if not alike or len(key.shape) != _RANK or key.shape[:-1] != value.shape[:-1]:
        return None
    edit, keys = Editor(graph, op), outer.over
    order = [*(dim for dim in range(_RANK - 1) if dim != keys), keys, _RANK - 1]
    batch = tuple(key.shape[dim] for dim in order[:2])
    one = tuple(1 for _ in graph.variants)
    asked = edit.shaped(inner.small, (*batch, one, query.shape[-1]))
    moved = [edit.permuted(each, order, hint) for each, hint in ((inner.whole, "keys"), (outer.whole, "values"))]
    arguments = (asked, *moved, None, 0.0, False)
    shape = (*batch, one, value.shape[-1])
    attends = "aten.scaled_dot_product_attention.default"
    attention = edit.add(attends, arguments, shape, "attention", {"scale": factor})
    by = edit.shaped(attention, made.shape)
    return edit.finish(f"{op.name} is the attention of one token", ops, by)


class _Chain:
    """Ops from a value backwards, each of which nothing else reads. at: the value where it stands."""

    def __init__(self, graph: Graph, at: Ref) -> None:
        self._graph, self.at, self.ops = graph, at, tuple[str, ...]()

    def take(self, targets: tuple[str, ...]) -> Op | None:
        """Go back through one of these ops; None where there is none."""
        op = producer(self._graph, self.at, *targets)
        if op is None or not isinstance(op.args[0], Ref):
            return None
        self.at, self.ops = op.args[0], (op.name, *self.ops)
        return op

    def skip(self, targets: tuple[str, ...]) -> None:
        """Go back through all of these that follow."""
        while self.take(targets) is not None:
            pass

    def factor(self) -> float | Varying:
        """Go back through a multiplication by a number, or a division, if there is one; what it comes to."""
        op = producer(self._graph, self.at, _PRODUCT, "aten.div.Tensor")
        number = op.args[1] if op is not None else None
        if op is None or not isinstance(op.args[0], Ref) or not isinstance(number, int | float | Varying):
            return 1.0
        self.at, self.ops = op.args[0], (op.name, *self.ops)
        if op.target == _PRODUCT:
            return float(number) if not isinstance(number, Varying) else number
        return Varying(tuple(1 / each for each in number.values)) if isinstance(number, Varying) else 1 / number


def _sum_of(graph: Graph, op: Op | None) -> _Sum | None:
    if op is None:
        return None
    if op.target == _EINSUM:
        return _of_labels(op)
    return _of_elements(graph, op) if op.target == _SUM else None


def _of_elements(graph: Graph, op: Op) -> _Sum | None:
    """(small[..., None, ...] * whole).sum(over)."""
    dims, kept = argument(op, 1, "dim"), argument(op, 2, "keepdim", False)
    product = producer(graph, op.args[0], _PRODUCT)
    if product is None or kept or not isinstance(dims, list | tuple) or len(dims) != 1:
        return None
    shape = graph.values[product.outputs[0]].shape
    for small, whole in (product.args[:2], product.args[1::-1]):
        widened = producer(graph, small, "aten.unsqueeze.default")
        fits = isinstance(whole, Ref) and graph.values[whole.name].shape == shape
        if widened is not None and fits and isinstance(widened.args[0], Ref):
            missing = widened.args[1] % len(shape)
            expected = (*shape[:missing], *shape[missing + 1 :])
            if graph.values[widened.args[0].name].shape == expected:
                ops = (widened.name, product.name, op.name)
                return _Sum(widened.args[0], whole, missing, dims[0] % len(shape), ops)
    return None


def _of_labels(op: Op) -> _Sum | None:
    """ "bhd,bthd->bth": what the first lacks, and what the result does."""
    equation, operands = op.args[0].replace(" ", ""), op.args[1]
    if "->" not in equation or len(operands) != 2 or "." in equation:
        return None
    given, result = equation.split("->")
    for (small, whole), (a, b) in _both(given.split(","), operands):
        lacks = [at for at, label in enumerate(whole) if label not in small]
        summed = [at for at, label in enumerate(whole) if label not in result]
        if len(lacks) != 1 or len(summed) != 1 or lacks == summed or len(set(whole)) < len(whole):
            continue
        if small == _without(whole, lacks[0]) and result == _without(whole, summed[0]):
            return _Sum(a, b, lacks[0], summed[0], (op.name,))
    return None


def _both(labels: list[str], operands: Any) -> list[tuple[tuple[str, str], tuple[Ref, Ref]]]:
    first, second = operands
    return [((labels[0], labels[1]), (first, second)), ((labels[1], labels[0]), (second, first))]


def _without(labels: str, at: int) -> str:
    return labels[:at] + labels[at + 1 :]


ONE_TOKEN: tuple[Rule, ...] = (_attends,)
