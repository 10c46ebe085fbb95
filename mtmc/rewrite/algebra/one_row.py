"""one_row: a product whose left operand has one row, or whose right one has one column, of each matrix of a batch, as a sum.

Proof. It is the definition: with one row, (a B)[n] = sum_k a[k] B[k, n], for each matrix of the batch; with one column,
(A b)[m] = sum_k A[m, k] b[k]. Each element of the matrix is in one product alone. Written as an Einstein sum the library
makes the same product of it, with the same roundings.

What it is for: a step of a recurrent state, a query over a cache. Tensor cores have 16 rows, of which 15 would be
empty; memory is the limit. A kernel that sums goes over the matrix once, with what makes it and what else reads it (the
next state), while a product ends a fusion on either side.
"""

from __future__ import annotations

from string import ascii_lowercase

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.algebra.laid_out import results_of
from mtmc.rewrite.algebra.turns import order_of
from mtmc.rewrite.graph import Graph, Op, Ref, is_one, lie_alike, product

_PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
_LEAST, _MOST = 3, 6
"""Dimensions of the operands: at least one of a batch."""


def _as_sum(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _PRODUCTS or not all(isinstance(item, Ref) for item in op.args):
        return None
    left, right = op.args
    a, b, made = (graph.values[name] for name in (left.name, right.name, op.outputs[0]))
    alike = len(a.shape) == len(b.shape) and a.shape[:-2] == b.shape[:-2] and a.is_float
    if not alike or not _LEAST <= len(a.shape) <= _MOST or is_one(product(a.shape[:-2])):
        return None
    row, column = is_one(a.shape[-2]), is_one(b.shape[-1])
    if row == column:
        return None
    vector, matrix, at = (left, right, len(a.shape) - 2) if row else (right, left, len(a.shape) - 1)
    edit, batch = Editor(graph, op), ascii_lowercase[: len(a.shape) - 2]
    short = edit.shaped(vector, (*a.shape[:-2], a.shape[-1]))
    inner, kept = "k", "n"
    matrix, sides = _untransposed(graph, matrix, f"{inner}{kept}" if row else f"{kept}{inner}")
    terms = (f"{batch}{inner}", f"{batch}{sides}")
    items = (short, matrix)
    shape = tuple(size for axis, size in enumerate(made.shape) if axis != at)
    equation = f"{','.join(terms if row else terms[::-1])}->{batch}{kept}"
    summed = edit.add("aten.einsum.default", (equation, items if row else items[::-1]), shape, "sum")
    by = edit.shaped(summed, made.shape)
    what = "row" if row else "column"
    finding = edit.finish(f"{op.name}, of one {what}, is a sum", (op.name,), by)
    if finding is None:
        return None
    known = results_of(finding.graph.by_name[summed.name], dict(finding.graph.values), len(graph.variants))
    return finding if known is not None and lie_alike(known[summed.name], edit.tensor(summed)) else None


def _untransposed(graph: Graph, item: Ref, sides: str) -> tuple[Ref, str]:
    """What a batch of matrices is the transpose of, with its last two labels so; the matrices themselves where they are
    none."""
    op = graph.by_name.get(graph.producer.get(item.name, ""))
    order = None if op is None else order_of(graph, op)
    if op is None or order is None or order != [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
        return item, sides
    return op.args[0], sides[::-1]


ONE_ROW: tuple[Rule, ...] = (_as_sum,)
