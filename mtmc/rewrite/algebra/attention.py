"""attention: attention with wide heads, written out as two products with a softmax between them.

Proof. It is the definition: softmax(c Q K^T) V with c = 1 / sqrt(width) or a given number, row by row; the softmax is taken
of the scaled scores in both.

What it is for: one kernel cannot hold a wide head's queries and sums, so it works out the scores again for each part of
the values' columns. Two products compute them once and write them. Of half precision that would round the scores, which
the library keeps in fp32 within its kernel, so it is done for fp32 alone.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.graph import Graph, Op, Ref, Size, Varying
from mtmc.rewrite.operators.steps import argument

WIDE = 256
"""Width of a head that one kernel still holds (as `templates.softmax_product.MAX_WIDTH`)."""
_EQUATIONS = {3: "bik,bjk->bij", 4: "bhik,bhjk->bhij"}


def _written_out(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.scaled_dot_product_attention.default":
        return None
    given = (argument(op, 3, "attn_mask"), argument(op, 4, "dropout_p", 0.0), argument(op, 5, "is_causal", False))
    query, key, value = (Ref(item.name) for item in op.args[:3])
    q, k, v = (graph.values[item.name] for item in (query, key, value))
    if given != (None, 0.0, False) or len(q.shape) not in _EQUATIONS or q.dtype != "float32":
        return None
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] or max(q.shape[-1][0], v.shape[-1][0]) <= WIDE:
        return None
    edit, scores = Editor(graph, op), (*q.shape[:-1], k.shape[-2])
    scale = argument(op, 6, "scale")
    product = edit.add("aten.einsum.default", (_EQUATIONS[len(q.shape)], (query, key)), scores, "scores")
    factor = _reciprocal_root(q.shape[-1]) if scale is None else scale
    scaled = edit.add("aten.mul.Tensor", (product, factor), scores, "scaled")
    weights = edit.add("aten.softmax.int", (scaled, -1), scores, "weights")
    by = edit.add("aten.matmul.default", (weights, value), (*q.shape[:-1], v.shape[-1]), "result")
    sentence = f"{op.name} with wide heads is two products and a softmax, which work out each score once"
    return edit.finish(sentence, (op.name,), by)


def _reciprocal_root(size: Size) -> float | Varying:
    values = tuple(number**-0.5 for number in size)
    return values[0] if len(set(values)) == 1 else Varying(values)


ATTENTION: tuple[Rule, ...] = (_written_out,)
