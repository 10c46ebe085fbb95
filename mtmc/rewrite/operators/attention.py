"""attention: scaled dot-product attention as steps: a product, its scale and mask, a softmax, a product.

The same steps as a reference that writes them out, so that one template covers both. Keys or values that are several
tensors one behind the other (a shared prompt's and a response's, a cache and what is new) are a step too.
"""

from __future__ import annotations

from mtmc.rewrite.body import Count, NotCovered, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref
from mtmc.rewrite.operators.steps import argument, floats, softmax_and_top, tensor

CAUSAL = "tl.where({rows} >= {cols}, {0}, float('-inf'))"
"""The map that leaves each row the columns up to its own, as torch's `is_causal` does also where it is no square."""

MASKED = "tl.where({1}, {0}, float('-inf'))"
"""The map that leaves the scores where a mask is true."""

NONE_LEFT = "tl.where({1} == float('-inf'), 0.0, {0})"
"""The map that gives weights of 0 where all columns of a row are masked, as torch's function does: its softmax gives NaN."""

SCALED_BY_WIDTH = "{0} * (1.0 / tl.sqrt({1} + 0.0))"
"""The map that scales scores as torch does where it is given no number."""


def _attention(builder: Builder, op: Op) -> None:
    query, key, value = tensor(op), tensor(op, 1), tensor(op, 2)
    mask, dropout = argument(op, 3, "attn_mask"), argument(op, 4, "dropout_p", 0.0)
    causal, scale = argument(op, 5, "is_causal", False), argument(op, 6, "scale")
    floats(builder, op, query, key, value)
    if dropout != 0.0:
        raise NotCovered("attention that draws random numbers")
    q, k, v = (builder.shape(each) for each in (query, key, value))
    if len({len(q), len(k), len(v)}) != 1 or len(q) < 3:
        raise NotCovered("attention over tensors of different ranks")
    scores = builder.dot(query, key, True, (*q[:-1], k[-2]))
    if scale is None:
        scores = builder.map(SCALED_BY_WIDTH, scores, Count(q[-1]), hint="scaled")
    else:
        scores = builder.map("{0} * {1}", scores, operand(scale), hint="scaled")
    if causal:
        scores = builder.map(CAUSAL, scores, hint="causal", flops=0)
    if isinstance(mask, Ref):
        expression = MASKED if builder.compute(mask.name) == "bool" else "{0} + {1}"
        scores = builder.map(expression, scores, mask.name, hint="masked")
    weights, top = softmax_and_top(builder, scores, len(q) - 1)
    if isinstance(mask, Ref):
        weights = builder.map(NONE_LEFT, weights, top, hint="left", flops=0)
    builder.dot(weights, value, False, (*q[:-1], v[-1]), name=op.outputs[0])


ATTENTION: dict[str, Expand] = {
    "aten.scaled_dot_product_attention.default": _attention,
}
