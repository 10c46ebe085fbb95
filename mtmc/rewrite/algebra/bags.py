"""bags: the sum, mean or maximum of embeddings, looked up a row of indices at a time.

Proof. It is the definition: embedding_bag with the offsets 0, L, 2 L, ... puts the indices b L to b L + L - 1 into bag b,
and gives of each bag the sum (mean, maximum) of their rows of the weight.

What it is for: the library's call is a whole that nothing can be joined with. A lookup costs nothing in a kernel, so the
reduction and what stands around it become one.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref, Size, Varying
from mtmc.rewrite.operators.steps import argument

_BAGS = ("aten.embedding_bag.padding_idx", "aten.embedding_bag.default")
_MODES = ("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default")
"""Of the sums, means and maxima, in torch's order."""
_SCALES, _LAST, _PADDING = 6, 7, 8
"""Where the scale of each index, whether the end of the last bag is given, and the index that counts for nothing stand."""


def _looked_up(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _BAGS or not all(isinstance(item, Ref) for item in op.args[:3]):
        return None
    scaled, last = argument(op, _SCALES, "per_sample_weights", None), argument(op, _LAST, "include_last_offset", False)
    padding = argument(op, _PADDING, "padding_idx", None)
    if scaled is not None or last or padding not in (None, -1):
        return None
    flat = producer(graph, op.args[1], "aten.reshape.default", "aten.view.default")
    if flat is None or not isinstance(flat.args[0], Ref):
        return None
    rows = graph.values[flat.args[0].name].shape
    if len(rows) != 2 or not _even(graph, op.args[2], *rows):
        return None
    result = graph.values[op.outputs[0]].shape
    edit, width = Editor(graph, op), graph.values[op.args[0].name].shape[1]
    found = edit.add("aten.embedding.default", (op.args[0], flat.args[0]), (*rows, width), "rows")
    by = edit.add(_MODES[int(argument(op, 4, "mode", 0))], (found, (1,)), result, "bag")
    return edit.finish(f"{op.name} is a reduction of rows that are looked up", (op.name,), by)


def _even(graph: Graph, offsets: Ref, bags: Size, each: Size) -> bool:
    """Whether offsets are 0, L, 2 L, ..., one for each bag. each: L at every variant."""
    made = producer(graph, offsets, "aten.arange.start_step")
    if made is None or graph.values[offsets.name].shape != (bags,):
        return False
    start, step = (_values(graph, argument(made, at, name, 1)) for at, name in ((0, "start"), (2, "step")))
    return start == (0,) * len(each) and step == each


def _values(graph: Graph, item: Any) -> tuple[float, ...]:
    return item.values if isinstance(item, Varying) else (item,) * len(graph.variants)


BAGS: tuple[Rule, ...] = (_looked_up,)
