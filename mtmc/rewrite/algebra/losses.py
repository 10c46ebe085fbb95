"""losses: the mean or sum of the cross entropy of a product, as that of the rows' own, of which each hangs on one row.

Proof. With l_i the loss of row i (0 where its class is ignored) and c the number of rows that are not ignored, torch defines
the sum as sum_i l_i and the mean as (sum_i l_i) / c.

What it is for: logits over a vocabulary are larger than all else that a language model's loss touches. The loss of a row
needs the largest logit, the sum of exponentials and one logit, which the product's kernel keeps while it makes the row, so
that no logit is written. What is added up over all rows stands in a kernel of its own behind it.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.operators.steps import argument

_MOST = 6


def _by_rows(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.cross_entropy_loss.default" or len(op.args) < 2:
        return None
    logits, target = op.args[:2]
    reduction, ignored = argument(op, 3, "reduction", 1), argument(op, 4, "ignore_index", -100)
    if reduction == 0 or argument(op, 2, "weight") is not None or product_of(graph, logits) is None:
        return None
    if not isinstance(target, Ref) or "int" not in graph.values[target.name].dtype:
        return None
    rows, edit = graph.values[logits.name].shape[:1], Editor(graph, op)
    smoothing = argument(op, 5, "label_smoothing", 0.0)
    own = edit.add(op.target, (logits, target, None, 0, ignored, smoothing), rows, "rows")
    by = edit.add("aten.sum.default", (own,), (), "total")
    if reduction == 1:
        counted = edit.add("aten.ne.Scalar", (target, ignored), rows, "counted", dtype="bool")
        count = edit.add("aten.sum.default", (counted,), (), "count", dtype="int64")
        by = edit.add("aten.div.Tensor", (by, count), (), "mean")
    word = "mean" if reduction == 1 else "sum"
    return edit.finish(f"the {word} of {op.name} is that of its rows, which the product can make", (op.name,), by)


def product_of(graph: Graph, logits: object) -> Op | None:
    """The product that makes logits [N, C], by way of at most `_MOST` ops of that shape, where nothing else reads any of
    them."""
    if not isinstance(logits, Ref) or len(graph.values[logits.name].shape) != 2:
        return None
    shape = graph.values[logits.name].shape
    for _ in range(_MOST):
        made = producer(graph, logits)
        if made is None or made.target in PRODUCTS:
            return made
        same = [ref for ref in map(Ref, made.refs()) if graph.values[ref.name].shape == shape]
        if len(same) != 1:
            return None
        logits = same[0]
    return None


LOSSES: tuple[Rule, ...] = (_by_rows,)
