"""einsums: an Einstein sum of two tensors as a product of matrices, between views that copy nothing.

Proof. It is the definition: with the labels of both operands that are kept first, then the left one's own, the summed one,
and the right one's own, sum_k A[b, m, k] B[b, k, n] is the batched product, and the result's dimensions are permuted.
Several labels of one operand's own are one index that runs over their pairs: sum_k A[b, m, k] B[b, k, (h, d)], with
(h, d) = h |d| + d, is the same sum for each pair, so the product's columns are pairs, too, and are taken apart again. The
operand's elements have such an index where h and d are neighbours in its order and a step of h is |d| steps of d in
memory, at every exported variant; the result's have it always. a b = b a, so either operand may be the left one: it is the
one whose own labels come first in the result. An operand of three whose labels are all in the result takes no part in the
sum: it is a factor of what the other two come to.

What it is for: a product as tensors of any order lie is nothing that a kernel is joined with. A product of matrices is one
with what comes before and after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, sizes
from mtmc.rewrite.algebra.laid_out import laid_out, results_of
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Shape, Size, Tensor, lie_alike, product, same_steps
from mtmc.rewrite.operators.einsums import Equation, equation_of, few_times

MAX_BATCH = 4
"""Labels of a batch that a kernel takes (as `templates.product.MAX_BATCH_DIMS`)."""


@dataclass(frozen=True)
class _Matrices:
    """An Einstein sum as a product of matrices. left, right: which operand is which. batch: labels of both that are kept.
    rows, columns: own labels of the left and of the right operand, in the order in which they lie. summed: the label."""

    left: int
    right: int
    batch: str
    rows: str
    summed: str
    columns: str


def _as_matrices(graph: Graph, op: Op) -> Finding | None:
    found = equation_with(op, 2)
    if found is None:
        return None
    extents = extents_of(graph, op, found)
    orders = _orders(found)
    if orders is None or extents is None or _lies_so(found, orders) or few_times(found, extents):
        return None
    ways = (orders, _Matrices(orders.right, orders.left, orders.batch, orders.columns, orders.summed, orders.rows))
    first_label = min((label for label in found.out if label not in orders.batch), key=found.out.index)
    ways = ways if first_label in orders.rows else ways[::-1]
    return next((made for way in ways if (made := _written(graph, op, found, way, extents)) is not None), None)


def _factored(graph: Graph, op: Op) -> Finding | None:
    """A sum of three operands as one of two, times the third, where that has labels of the result alone."""
    found = equation_with(op, 3)
    if found is None:
        return None
    extents = extents_of(graph, op, found)
    at = next((number for number in (2, 1, 0) if set(found.terms[number]) <= set(found.out)), None)
    if at is None or extents is None:
        return None
    others = [number for number in range(3) if number != at]
    left = Equation(tuple(found.terms[number] for number in others), found.out)
    if set("".join(left.terms)) < set(found.out):
        return None
    edit, old, lying = Editor(graph, op), graph.values[op.outputs[0]], in_order_of_matrices(left)
    shape = tuple(extents[label] for label in lying)
    terms = (f"{','.join(left.terms)}->{lying}", tuple(op.args[1][number] for number in others))
    made = edit.add(op.target, terms, shape, "rest")
    ordered = "".join(label for label in lying if label in found.terms[at])
    factor = permuted(edit, op.args[1][at], found.terms[at], ordered)
    ones = (1,) * len(graph.variants)
    factor = edit.shaped(factor, tuple(extents[label] if label in ordered else ones for label in lying))
    by = edit.add("aten.mul.Tensor", (made, factor), shape, "product")
    seen = permuted(edit, by, lying, found.out)
    if not lie_alike(edit.tensor(seen), old):
        return None
    finding = edit.replaced(f"{op.name} is a sum of two, times the third", (op.name,), {op.outputs[0]: seen})
    for item in (made, by):  # in the order of its dimensions, whatever the library makes of that sum
        known = results_of(finding.graph.by_name[item.name], dict(finding.graph.values), len(graph.variants))
        if known is None or not lie_alike(known[item.name], edit.tensor(item)):
            return None
    return finding


def in_order_of_matrices(found: Equation) -> str:
    """The labels of a sum of two in the order in which a product of matrices gives them, its rows those that come first in
    the result; in that of the result where it is no such product."""
    orders = _orders(found)
    if orders is None:
        return found.out
    first = next(label for label in found.out if label not in orders.batch)
    sides = (orders.rows, orders.columns) if first in orders.rows else (orders.columns, orders.rows)
    return "".join((orders.batch, *sides))


def _written(graph: Graph, op: Op, found: Equation, way: _Matrices, extents: Mapping[str, Size]) -> Finding | None:
    """The graph with a product of matrices in the sum's place; None where an operand's labels are no one index, or the
    result would lie in memory in another way than something needs."""
    edit = Editor(graph, op)
    operands = []
    for number, order in ((way.left, (way.rows, way.summed)), (way.right, (way.summed, way.columns))):
        item = _as_matrix(edit, op.args[1][number], found.terms[number], way.batch, order)
        if item is None:
            return None
        operands.append(_in_order(edit, *item))
    sides = (*way.batch, way.rows, way.columns)
    shape = tuple(product(tuple(extents[label] for label in labels)) for labels in sides)
    made = edit.add("aten.matmul.default", tuple(operands), shape, "product")
    result = "".join(sides)
    made = edit.shaped(made, tuple(extents[label] for label in result))
    by = permuted(edit, made, result, found.out)
    old = graph.values[op.outputs[0]]
    if old.contiguous and not edit.tensor(by).contiguous:
        by = edit.add("aten.contiguous.default", (by,), edit.tensor(by).shape, "in_order")
    new = edit.tensor(by)
    finding = edit.finish(f"{op.name} is a product of matrices", (op.name,), by)
    if finding is None or lie_alike(new, old):
        return finding
    lying = laid_out(finding.graph, [by.name])  # views of it may lie in other ways, too
    if lying is not None:
        return replace(finding, graph=lying)
    copy = _copied_as(edit, by, old)
    return None if copy is None else edit.finish(f"{op.name} is a product of matrices", (op.name,), copy)


def _in_order(edit: Editor, item: Ref, term: str, order: str) -> Ref:
    """A matrix of each product, the labels of its two dimensions behind those of the batch, copied in order where neighbours
    in memory belong to other products: a product would read single numbers, and the library copies it, too. What makes the
    matrices can write them so: each keeps the order that its two dimensions have in memory, and is multiplied transposed
    where that is the other one. What is made row by row is not written across then."""
    tensor = edit.tensor(item)
    down, across = (tensor.lying[term.index(label)][0] for label in order[-2:])
    if 1 in (down, across):
        return permuted(edit, item, term, order)
    lying = order if down > across else f"{order[:-2]}{order[-1]}{order[-2]}"
    moved = permuted(edit, item, term, lying)
    copy = edit.add(IN_ORDER, (moved,), edit.tensor(moved).shape, "of_each", dtype=tensor.dtype)
    return permuted(edit, copy, lying, order)


def _copied_as(edit: Editor, item: Ref, old: Tensor) -> Ref | None:
    """A copy of a tensor that lies as another one does; None where that one has gaps."""
    order = sorted(range(len(old.shape)), key=lambda axis: -old.strides[axis][0] if old.strides else axis)
    labels = "".join(map(chr, range(ord("a"), ord("a") + len(order))))
    turned = "".join(labels[axis] for axis in order)
    moved = permuted(edit, item, labels, turned)
    copy = edit.add("aten.contiguous.default", (moved,), edit.tensor(moved).shape, "in_order")
    found = permuted(edit, copy, turned, labels)
    return found if lie_alike(edit.tensor(found), old) else None


def equation_with(op: Op, operands: int) -> Equation | None:
    """The equation of a sum of so many operands; None for another op, or one with dots or repeated labels."""
    if op.target != "aten.einsum.default" or len(op.args[1]) != operands:
        return None
    try:
        return equation_of(op)
    except NotCovered:
        return None


def extents_of(graph: Graph, op: Op, found: Equation) -> dict[str, Size] | None:
    """The size of each label; None where a size of 1 stands for a larger one."""
    extents: dict[str, Size] = {}
    for term, item in zip(found.terms, op.args[1], strict=True):
        for label, size in zip(term, graph.values[item.name].shape, strict=True):
            if extents.setdefault(label, size) != size:
                return None
    return extents


def _lies_so(found: Equation, way: _Matrices) -> bool:
    """Whether it is a product of matrices already, of which the right one may be transposed."""
    right = (f"{way.batch}{way.summed}{way.columns}", f"{way.batch}{way.columns}{way.summed}")
    plain = len(way.rows) == len(way.columns) == 1
    left = f"{way.batch}{way.rows}{way.summed}"
    return plain and found.terms[0] == left and found.terms[1] in right and found.out == f"{left[:-1]}{way.columns}"


def _orders(found: Equation) -> _Matrices | None:
    """The labels of both operands as matrices, the first one left; None where it is no product of matrices."""
    left, right = found.terms
    batch = "".join(label for label in found.out if label in left and label in right)
    rows, columns = (
        "".join(label for label in term if label not in other) for term, other in ((left, right), (right, left))
    )
    if len(found.summed) != 1 or not rows or not columns or len(batch) > MAX_BATCH:
        return None
    if found.summed not in left or found.summed not in right or not {*rows, *columns} <= set(found.out):
        return None
    return _Matrices(0, 1, batch, rows, found.summed, columns)


def _as_matrix(edit: Editor, item: Ref, term: str, batch: str, sides: tuple[str, str]) -> tuple[Ref, str, str] | None:
    """An operand with the labels of each side as one dimension, as a view; its labels then, and in which order they are
    those of a matrix of each product. None where those of a side are no one index of it."""
    folded = term
    for side in sides:
        if side not in term:
            return None
        if len(side) > 1:
            at = folded.index(side)
            tensor = edit.tensor(item)
            view = _folded(tensor, at, at + len(side))
            if view is None:
                return None
            shape, strides = view
            item = edit.add("aten.reshape.default", (item, sizes(shape)), shape, "folded", strides=strides)
            folded = folded.replace(side, side[0])
    return item, folded, "".join((*batch, *(side[0] for side in sides)))


def _folded(tensor: Tensor, start: int, stop: int) -> tuple[Shape, Shape] | None:
    """Shape and strides of a tensor with some neighbouring dimensions as one; None where one index does not reach them."""
    one = product(tensor.shape[start:stop])
    shape = (*tensor.shape[:start], one, *tensor.shape[stop:])
    if tensor.contiguous:
        return shape, ()
    for axis in range(start, stop - 1):
        steps = zip(tensor.strides[axis + 1], tensor.shape[axis + 1], strict=True)
        if not same_steps(tensor.shape[axis], tensor.strides[axis], tuple(step * size for step, size in steps)):
            return None
    return shape, (*tensor.strides[:start], tensor.strides[stop - 1], *tensor.strides[stop:])


def permuted(edit: Editor, item: Ref, term: str, order: str) -> Ref:
    """A tensor with its dimensions in another order, as a view."""
    return edit.permuted(item, [term.index(label) for label in order], "permuted")


EINSUMS: tuple[Rule, ...] = (_factored, _as_matrices)
