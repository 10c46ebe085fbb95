"""ordered: what is read many times, across its rows, is copied in order before.

Proof. A copy has the elements of what it is a copy of.

What it is for: a bias of attention that a layer makes of pairs of places, its heads last, and that all rows of a batch
share. The kernel that reads it 64 times would read it by single elements each time, since neighbours of a row lie a head's
step apart. The copy reads it so once.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Tensor, product
from mtmc.rewrite.operators.elementwise import POINTWISE

_ATTENTION = "aten.scaled_dot_product_attention.default"
_COPIES = ("aten.contiguous.default", "aten.clone.default")
_VIEWS = ("aten.permute.default", "aten.transpose.int", "aten.unsqueeze.default", "aten.movedim.int")
TIMES = 8
"""How often it is read at least."""
LEAST = 2**14
"""Elements at the full shapes below which it lies in the nearest cache however it is read."""


def _ordered(graph: Graph, op: Op) -> Finding | None:
    if op.target in _COPIES:
        return _kept(graph, op)
    if op.target not in _VIEWS or len(op.outputs) != 1 or op.outputs[0] in graph.results():
        return None
    view = graph.values.get(op.outputs[0])
    if view is None or not _across(view) or not isinstance(op.args[0], Ref) or op.args[0].name in graph.parameters:
        return None
    readers = [graph.by_name[name] for name in graph.readers(op.outputs[0])]
    if not readers or not all(_repeats(graph, view, reader) for reader in readers):
        return None
    edit = Editor(graph, op)
    seen = edit.add(op.target, op.args, view.shape, "across", op.kwargs, strides=view.strides)
    copy = edit.add(IN_ORDER, (seen,), view.shape, "in_order")
    return edit.replaced(f"{op.name} is copied in order", (op.name,), {op.outputs[0]: copy})


def _kept(graph: Graph, op: Op) -> Finding | None:
    """A copy that is there already, of what lies across its rows, and that no kernel takes in from now on."""
    operand, copy = op.args[0], graph.values.get(op.outputs[0])
    if not isinstance(operand, Ref) or copy is None or not copy.contiguous or not _across(graph.values[operand.name]):
        return None
    if graph.values[operand.name].dtype != copy.dtype or op.outputs[0] in graph.results():
        return None
    readers = [graph.by_name[name] for name in graph.readers(op.outputs[0])]
    if not readers or not all(_repeats(graph, copy, reader) for reader in readers):
        return None
    edit = Editor(graph, op)
    return edit.finish(
        f"{op.name} is copied in order", (op.name,), edit.add(IN_ORDER, (operand,), copy.shape, "in_order")
    )


def _across(view: Tensor) -> bool:
    """Whether neighbours of a row do not lie side by side, at the full shapes."""
    if view.contiguous or len(view.shape) < 2 or not view.strides:
        return False
    return view.strides[-1][0] > 1 and product(view.shape)[0] >= LEAST


def _repeats(graph: Graph, view: Tensor, reader: Op) -> bool:
    """Whether an op goes by elements and reads a value for many of its own each."""
    if reader.outputs[0] not in graph.values:
        return False
    if reader.target == _ATTENTION:
        queries, keys = (graph.values[each.name].shape for each in reader.args[:2])
        read = product((*queries[:-1], keys[-2]))
    elif reader.target in _BY_ELEMENTS:
        read = product(graph.values[reader.outputs[0]].shape)
    else:
        return False
    return read[0] >= TIMES * product(view.shape)[0]


_BY_ELEMENTS = frozenset(
    {*POINTWISE, *(f"aten.{name}" for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "where.self"))}
)
"""Ops that go by elements; of attention's scores the mask is read once each."""

ORDERED: tuple[Rule, ...] = (_ordered,)
