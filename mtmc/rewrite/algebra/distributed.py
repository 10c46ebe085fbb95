"""distributed: values weighted by a sum of two softmaxes, as the sum of what each of them gives.

Proof. (a P + b Q) V = a (P V) + b (Q V) for numbers a and b. A slice of the batch of what goes through a batch sample by
sample (products of matrices, a softmax of rows, functions of elements) is the same of the slices of what goes in.

What it is for: attention with one softmax taken from another (Differential Transformer). As written, both are in memory, and
their difference is once more. Each by itself is attention, which one kernel does without writing a score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mtmc.rewrite.algebra.edit import CASTS, SOFTMAXES, Editor, Finding, Rule, producer
from mtmc.rewrite.algebra.turned import ALONE
from mtmc.rewrite.algebra.turns import order_of
from mtmc.rewrite.graph import Graph, Op, Ref, Varying, product
from mtmc.rewrite.operators.steps import argument

_SUMS = {"aten.add.Tensor": 1, "aten.sub.Tensor": -1}
_PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
_SCALES = ("aten.mul.Tensor", "aten.div.Tensor")
_MASKS = ("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
_ROWS = -2
"""A product's rows; batch dimensions stand before."""


class _Term(NamedTuple):
    """A softmax, or a slice of its batch, times a number. at: the slice's dimension and place; None for all of it."""

    softmax: Op
    at: tuple[int, int] | None
    factor: Any


def _distributed(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _PRODUCTS or not all(isinstance(item, Ref) for item in op.args[:2]):
        return None
    join = _before_casts(graph, op.args[0])
    if join is None or join.target not in _SUMS or len(join.args) != 2 or join.kwargs:
        return None
    first, second = (_term(graph, item) for item in join.args)
    if first is None or second is None:
        return None
    edit, made = Editor(graph, op), graph.values[op.outputs[0]]
    parts = []
    for term in (first, second):
        weights = _sliced(edit, Ref(term.softmax.outputs[0]), term.at)
        part = edit.add(op.target, (_cast(edit, weights, made.dtype), op.args[1]), made.shape, "part")
        part = _cast(edit, part, "float32")
        if term.factor is not None:
            part = edit.add("aten.mul.Tensor", (part, term.factor), made.shape, "weighted", dtype="float32")
        parts.append(part)
    whole = edit.add(join.target, tuple(parts), made.shape, "parts", dtype="float32")
    return edit.finish(
        f"{op.name} is taken of each softmax by itself", (join.name, op.name), _cast(edit, whole, made.dtype)
    )


def _before_casts(graph: Graph, item: Any) -> Op | None:
    """The op that makes a value, or what it is cast from; None where anything else reads what is between."""
    op = producer(graph, item)
    while op is not None and op.target in CASTS:
        op = producer(graph, op.args[0])
    return op


def _term(graph: Graph, item: Any) -> _Term | None:
    op = _before_casts(graph, item)
    factor = None
    if op is not None and op.target == "aten.mul.Tensor":
        numbers = [each for each in op.args if _is_number(graph, each)]
        if len(numbers) != 1 or len(op.args) != 2:
            return None
        factor = numbers[0]
        op = _before_casts(graph, op.args[1] if op.args[0] is factor else op.args[0])
    at = None
    if op is not None and op.target == "aten.select.int" and isinstance(op.args[0], Ref):
        dim, place = op.args[1:3]
        maker = graph.producer.get(op.args[0].name)
        rank = len(graph.values[op.args[0].name].shape)
        if maker is None or not isinstance(place, int) or isinstance(dim, Varying) or dim % rank >= rank + _ROWS:
            return None
        at, op = (dim % rank, place), graph.by_name[maker]
    if op is None or op.target not in SOFTMAXES:
        return None
    last = len(graph.values[op.outputs[0]].shape) - 1
    return _Term(op, at, factor) if argument(op, 1, "dim") in (-1, last) else None


def _is_number(graph: Graph, item: Any) -> bool:
    """Whether an argument is one number, or a tensor of one element."""
    if not isinstance(item, Ref):
        return isinstance(item, (int, float, Varying))
    known = graph.values.get(item.name)
    return known is not None and set(product(known.shape) or (1,)) == {1}


def _cast(edit: Editor, item: Ref, dtype: str) -> Ref:
    import torch

    tensor = edit.tensor(item)
    if tensor.dtype == dtype:
        return item
    return edit.add("aten.to.dtype", (item, getattr(torch, dtype)), tensor.shape, "cast", dtype=dtype)


def _sliced(edit: Editor, item: Ref, at: tuple[int, int] | None) -> Ref:
    """A slice of the batch of a value, of slices of what it is made of as far back as that goes."""
    if at is None:
        return item
    graph, dim = edit.graph, at[0]
    op = graph.by_name.get(graph.producer.get(item.name, ""))
    tensor = graph.values[item.name]
    shape = (*tensor.shape[:dim], *tensor.shape[dim + 1 :])
    args = None if op is None or op.outputs != (item.name,) or op.kwargs else _arguments(edit, op, at)
    if op is None or args is None:
        strides = (*tensor.lying[:dim], *tensor.lying[dim + 1 :])
        return edit.add("aten.select.int", (item, *at), shape, "slice", strides=strides, dtype=tensor.dtype)
    order = order_of(graph, op)
    if order is not None:
        return edit.permuted(args[0], [each - (each > dim) for each in order if each != dim], "turned")
    return edit.add(op.target, args, shape, op.name, dtype=tensor.dtype)


def _arguments(edit: Editor, op: Op, at: tuple[int, int]) -> tuple[Any, ...] | None:
    """An op's arguments for a slice of the batch; None where it does not go through that sample by sample."""
    graph, (dim, _) = edit.graph, at
    rank = len(graph.values[op.outputs[0]].shape)
    if (order := order_of(graph, op)) is not None:
        return (_sliced(edit, op.args[0], at),) if order[dim] == dim else None
    if op.target in _PRODUCTS or op.target in _SCALES:
        return tuple(_operand(edit, each, at, rank) for each in op.args)
    if op.target in _MASKS:
        return (*(_operand(edit, each, at, rank) for each in op.args[:2]), *op.args[2:])
    if op.target in SOFTMAXES:
        own = argument(op, 1, "dim") % rank
        return None if own == dim else (_operand(edit, op.args[0], at, rank), own - (own > dim), *op.args[2:])
    if op.target in (*CASTS, *ALONE) and len(op.refs()) == 1:
        return (_operand(edit, op.args[0], at, rank), *op.args[1:])
    return None


def _operand(edit: Editor, item: Any, at: tuple[int, int], rank: int) -> Any:
    """An operand for a slice, where all that an op takes is aligned at its last dimensions. rank: of the result."""
    if not isinstance(item, Ref):
        return item
    shape = edit.graph.values[item.name].shape
    own = at[0] - (rank - len(shape))
    if own < 0:
        return _again(edit, item)
    return _sliced(edit, item, (own, 0 if set(shape[own]) == {1} else at[1]))


def _again(edit: Editor, item: Ref) -> Ref:
    """A value, made anew where it is made of numbers alone: a mask, which each kernel then makes for itself."""
    graph = edit.graph
    op = graph.by_name.get(graph.producer.get(item.name, ""))
    if op is None or op.name not in graph.of_numbers or op.outputs != (item.name,):
        return item
    args = tuple(_again(edit, each) if isinstance(each, Ref) else each for each in op.args)
    tensor = graph.values[item.name]
    return edit.add(op.target, args, tensor.shape, op.name, op.kwargs, dtype=tensor.dtype)


DISTRIBUTED: tuple[Rule, ...] = (_distributed,)
