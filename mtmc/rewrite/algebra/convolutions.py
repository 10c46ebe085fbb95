"""convolutions: what rules on convolutions read of their arguments."""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

CONVOLUTIONS = {"aten.conv1d.default": 1, "aten.conv2d.default": 2, "aten.conv3d.default": 3}
TRANSPOSED = {"aten.conv_transpose1d.default": 1, "aten.conv_transpose2d.input": 2, "aten.conv_transpose3d.input": 3}
"""Targets, and how many dimensions of places they have."""
STRIDE_AT, PADDING_AT, DILATION_AT, GROUPS_AT = 3, 4, 5, 6
"""Where these stand among a convolution's arguments."""


def each_of(sizes: Any) -> tuple[Any, ...]:
    """A setting of each dimension of places, of which one number stands for all."""
    return tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)


def mixes_each_place(graph: Graph, op: Op) -> bool:
    """Whether an op is a convolution of one tap, with a stride of 1 and no padding: it mixes the channels of each place."""
    rank = CONVOLUTIONS.get(op.target)
    if rank is None or not all(isinstance(item, Ref) for item in op.args[:2]):
        return False
    x, weight = (graph.values.get(item.name) for item in op.args[:2])
    if x is None or weight is None or len(x.shape) != rank + 2:
        return False
    one_tap = all(set(size) == {1} for size in weight.shape[2:])
    strides, padding = argument(op, STRIDE_AT, "stride", 1), argument(op, PADDING_AT, "padding", 0)
    plain = set(each_of(strides)) == {1} and set(each_of(padding)) == {0} and argument(op, GROUPS_AT, "groups", 1) == 1
    return one_tap and plain
