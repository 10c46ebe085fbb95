"""bags: sums, means and maxima of embeddings, whose bags begin at indices that a tensor holds.

A bag ends where the next one begins, the last with the indices, unless the offsets say that too.
"""

from __future__ import annotations

import math

from mtmc.rewrite.body import Count, Index, NotCovered, Number
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Size
from mtmc.rewrite.index_maps import Looked, Rolled, Sliced
from mtmc.rewrite.operators.lookups import index_of
from mtmc.rewrite.operators.steps import argument, floats, result_of, tensor

_MODES = ("sum", "mean", "max")
"""In torch's order."""


def _bags(builder: Builder, op: Op) -> None:
    table, which, offsets = tensor(op), index_of(builder, op, op.args[1]), index_of(builder, op, op.args[2])
    mode, scales = argument(op, 4, "mode", 0), argument(op, 6, "per_sample_weights")
    shape, count = result_of(builder, op), builder.shape(which)
    floats(builder, op, table, *([scales.name] if isinstance(scales, Ref) else []))
    if mode not in range(len(_MODES)) or len(shape) != 2 or len(count) != 1 or (scales is not None and mode != 0):
        raise NotCovered(f"{op.target} with mode {mode!r} of indices with {len(count)} dimensions")
    spread = (*count, shape[1])
    rows = builder.index("lookup", Looked((0,), 0, 1), (table, which), spread, fill=math.nan)
    if isinstance(scales, Ref):
        column = builder.view(scales.name, (*count, (1,) * len(count[0])), hint="column")
        rows = builder.map("{0} * {1}", rows, column, hint="scaled")
    begin = builder.index("slice", _from(0, shape[0]), (offsets,), shape[:1])
    if argument(op, 7, "include_last_offset", False):
        end = builder.index("slice", _from(1, shape[0]), (offsets,), shape[:1])
    else:
        following = builder.index("roll", Rolled((0,), ((-1,) * len(shape[0]),)), (offsets,), shape[:1])
        parts = (Index(1), Count(shape[0]), following, Count(count[0]))
        end = builder.map("tl.where({0} + 1 < {1}, {2}, {3})", *parts, compute="int", hint="end", flops=0)
    padding = _padding(op)
    counts = (
        () if padding is None else (builder.map("{0} != {1}", which, Number(padding), compute="bool", hint="counts"),)
    )
    builder.bag(_MODES[mode], (rows, begin, end, *counts), shape, op.outputs[0])


def _from(start: int, like: Size) -> Sliced:
    return Sliced(0, (start,) * len(like), (1,) * len(like))


def _padding(op: Op) -> int | None:
    """The index that counts for nothing. Raises: NotCovered where it counts from the table's end."""
    padding = argument(op, 8, "padding_idx")
    if padding is None or (padding == -1 and op.target.startswith("aten._embedding_bag")):
        return None
    if not isinstance(padding, int) or padding < 0:
        raise NotCovered(f"{op.target} with the padding {padding!r}")
    return padding


BAGS: dict[str, Expand] = {
    f"aten.{name}": _bags
    for name in (
        "_embedding_bag.default",
        "_embedding_bag_forward_only.default",
        "embedding_bag.default",
        "embedding_bag.padding_idx",
    )
}
