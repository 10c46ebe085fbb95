"""cells: one step of a recurrent network as two products and elementwise work.

Proof. It is the definition. With the parts of W x + b and U h + c, one for each gate, and s the sigmoid:
LSTM: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), each gate's argument being the sum of its two parts.
GRU: n = tanh(n1 + s(r) n2), h' = n + s(z) (h - n), with n1 of the input's product and n2 of the state's.

What it is for: the library's call is a whole that nothing can be joined with. Written out, the gates are one kernel, which
takes up what comes before and after it.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of
from mtmc.rewrite.graph import Graph, Op, Ref, Shape
from mtmc.rewrite.operators.steps import argument


def _lstm(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.lstm_cell.default":
        return None
    x, (hidden, cell), to_gates, from_state = op.args[:4]
    if not _covers(graph, x, hidden):
        return None
    edit, shape = Editor(graph, op), graph.values[op.outputs[0]].shape
    given = _parts(edit, x, to_gates, argument(op, 4, "b_ih"), 4, shape)
    kept = _parts(edit, hidden, from_state, argument(op, 5, "b_hh"), 4, shape)
    sums = [edit.add("aten.add.Tensor", pair, shape, "sum") for pair in zip(given, kept, strict=True)]
    enter, forget, leave = (edit.add("aten.sigmoid.default", (sums[at],), shape, "gate") for at in (0, 1, 3))
    new = edit.add("aten.tanh.default", (sums[2],), shape, "new")
    left = edit.add("aten.mul.Tensor", (forget, cell), shape, "left")
    entered = edit.add("aten.mul.Tensor", (enter, new), shape, "entered")
    state = edit.add("aten.add.Tensor", (left, entered), shape, "cell")
    shown = edit.add("aten.tanh.default", (state,), shape, "shown")
    by = edit.add("aten.mul.Tensor", (leave, shown), shape, "hidden")
    return edit.finish(f"{op.name} is two products and elementwise work on their parts", (op.name,), by, state)


def _gru(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.gru_cell.default":
        return None
    x, hidden, to_gates, from_state = op.args[:4]
    if not _covers(graph, x, hidden):
        return None
    edit, shape = Editor(graph, op), graph.values[op.outputs[0]].shape
    given = _parts(edit, x, to_gates, argument(op, 4, "b_ih"), 3, shape)
    kept = _parts(edit, hidden, from_state, argument(op, 5, "b_hh"), 3, shape)
    sums = [edit.add("aten.add.Tensor", (given[at], kept[at]), shape, "sum") for at in (0, 1)]
    reset, update = (edit.add("aten.sigmoid.default", (each,), shape, "gate") for each in sums)
    taken = edit.add("aten.mul.Tensor", (reset, kept[2]), shape, "taken")
    argued = edit.add("aten.add.Tensor", (given[2], taken), shape, "argued")
    new = edit.add("aten.tanh.default", (argued,), shape, "new")
    apart = edit.add("aten.sub.Tensor", (hidden, new), shape, "apart")
    moved = edit.add("aten.mul.Tensor", (update, apart), shape, "moved")
    by = edit.add("aten.add.Tensor", (new, moved), shape, "hidden")
    return edit.finish(f"{op.name} is two products and elementwise work on their parts", (op.name,), by)


def _covers(graph: Graph, *operands: Any) -> bool:
    return all(isinstance(item, Ref) and len(graph.values[item.name].shape) == 2 for item in operands)


def _parts(edit: Editor, x: Ref, weight: Ref, bias: Any, count: int, shape: Shape) -> list[Ref]:
    """The product with a layer's weight, cut into its gates' columns."""
    rows, width = shape
    whole = tuple(count * size for size in width)
    product = edit.add("aten.linear.default", (x, weight, bias), (rows, whole), "product")
    strides = (whole, (1,) * len(whole))
    ends = [number_of([at * size for size in width]) for at in range(count + 1)]
    return [
        edit.add("aten.slice.Tensor", (product, 1, ends[at], ends[at + 1]), shape, "part", strides=strides)
        for at in range(count)
    ]


CELLS: tuple[Rule, ...] = (_lstm, _gru)
