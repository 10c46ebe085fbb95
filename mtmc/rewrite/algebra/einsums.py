"""einsums: an Einstein sum of two tensors as a product of matrices, between permutations that copy nothing.

Proof. It is the definition: with the labels of both operands that are kept first, then the left one's own, the summed one,
and the right one's own, sum_k A[b, m, k] B[b, k, n] is the batched product, and the result's dimensions are permuted.

What it is for: a product as tensors of any order lie is nothing that a kernel is joined with. A product of matrices is one
with what comes before and after it.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import Graph, Op, Ref, Shape
from mtmc.rewrite.operators.einsums import Equation, equation_of

MAX_BATCH = 2
"""Labels of a batch that a kernel takes (as `templates.product.MAX_BATCH_DIMS`)."""


def _as_matrices(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.einsum.default" or len(op.args[1]) != 2:
        return None
    try:
        found = equation_of(op)
    except NotCovered:
        return None
    orders = _orders(found)
    if orders is None or _lies_so(found, *orders):
        return None
    (left, right, result), edit = orders, Editor(graph, op)
    sizes = {
        label: size
        for term, item in zip(found.terms, op.args[1], strict=True)
        for label, size in zip(term, graph.values[item.name].shape, strict=True)
    }
    if any(graph.values[item.name].shape != tuple(sizes[label] for label in term) for term, item in _given(found, op)):
        return None  # a size of 1 that stands for a larger one
    given = zip(_given(found, op), (left, right), strict=True)
    a, b = (_permuted(edit, Ref(item.name), term, order) for (term, item), order in given)
    shape = tuple(sizes[label] for label in result)
    product = edit.add("aten.matmul.default", (a, b), shape, "product")
    by = _permuted(edit, product, result, found.out)
    if graph.values[op.outputs[0]].contiguous and not edit.tensor(by).contiguous:
        by = edit.add("aten.contiguous.default", (by,), edit.tensor(by).shape, "in_order")
    return edit.finish(f"{op.name} is a product of matrices", (op.name,), by)


def _lies_so(found: Equation, left: str, right: str, result: str) -> bool:
    """Whether it is a product of matrices already, of which the right one may be transposed."""
    turned = f"{right[:-2]}{right[-1]}{right[-2]}"
    return found.terms[0] == left and found.terms[1] in (right, turned) and found.out == result


def _given(found: Equation, op: Op) -> list[tuple[str, Ref]]:
    return list(zip(found.terms, op.args[1], strict=True))


def _orders(found: Equation) -> tuple[str, str, str] | None:
    """The labels of both operands and of their product as matrices; None where it is no product of matrices."""
    left, right = found.terms
    batch = [label for label in found.out if label in left and label in right]
    rows, columns = ([label for label in term if label not in other] for term, other in ((left, right), (right, left)))
    if len(found.summed) != 1 or len(rows) != 1 or len(columns) != 1 or len(batch) > MAX_BATCH:
        return None
    if found.summed not in left or found.summed not in right or not {*rows, *columns} <= set(found.out):
        return None
    shared = "".join(batch)
    return f"{shared}{rows[0]}{found.summed}", f"{shared}{found.summed}{columns[0]}", f"{shared}{rows[0]}{columns[0]}"


def _permuted(edit: Editor, item: Ref, term: str, order: str) -> Ref:
    """A tensor with its dimensions in another order, as a view."""
    if term == order:
        return item
    tensor, dims = edit.tensor(item), tuple(term.index(label) for label in order)
    own = tensor.strides or _contiguous(tensor.shape)
    shape, strides = (tuple(part[dim] for dim in dims) for part in (tensor.shape, own))
    return edit.add("aten.permute.default", (item, dims), shape, "permuted", strides=strides)


def _contiguous(shape: Shape) -> Shape:
    strides = [(1,) * len(shape[0])]
    for size in reversed(shape[1:]):
        strides.insert(0, tuple(a * b for a, b in zip(strides[0], size, strict=True)))
    return tuple(strides)


EINSUMS: tuple[Rule, ...] = (_as_matrices,)
