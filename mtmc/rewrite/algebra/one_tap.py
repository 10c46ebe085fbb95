"""one_tap: a convolution of one tap as a product of matrices.

Proof. With one tap, a stride of 1 and no padding, y[b, o, p] = sum_c W[o, c] x[b, c, p] + bias[o]: at each place p the layer
of the channels there. Where channels lie last that is a layer over all places; where they come first, it is the weight times
each image's matrix of channels and places. Either reads and writes what lies there, and copies nothing.

Where all that reads a result are convolutions of more taps, which the library does on channels that lie last, those of the
result do so, too: at each place it is the layer of channels that lie across. So nothing is copied on the way there, and what
a convolution of one tap makes of that result reads it as it lies.

What it is for: in 16 bits the library copies an operand whose channels come first, convolves, and copies back. A product of
matrices takes in what stands before (a join of maps, an enlarged one, a norm) and behind. fp32 stays a convolution: there
the library rounds to TF32, which a product does not.
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, GROUPS_AT, mixes_each_place
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.algebra.turned import keeps_places
from mtmc.rewrite.graph import Graph, Op, Ref, last_channels, lies_channels_last, product
from mtmc.rewrite.operators.steps import argument

HALVES = ("float16", "bfloat16")
_Way = Callable[[Editor, Ref, Ref, "Ref | None"], Ref]
"""Writes the product of an operand with a matrix of weights, and adds a bias."""


def as_product(graph: Graph, op: Op) -> Finding | None:
    """The rule. op: the convolution."""
    if not is_of_one_tap(graph, op):
        return None
    later = graph.ops[graph.ops.index(op) + 1 :]
    # the last one first: a convolution that is left would take the layout of its operand on to forward's results
    return None if any(is_of_one_tap(graph, other) for other in later) else _written(graph, op)


def is_of_one_tap(graph: Graph, op: Op) -> bool:
    """Whether an op is a convolution that can be a product."""
    if not mixes_each_place(graph, op):
        return False
    x, weight = (graph.values[item.name] for item in op.args[:2])
    return x.dtype in HALVES and weight.contiguous and (x.contiguous or lies_channels_last(x))


def _written(graph: Graph, op: Op) -> Finding | None:
    first = graph.values[op.args[0].name].contiguous
    if first and _is_read_by_windows(graph, op.outputs[0]):
        turned = _by(graph, op, _of_each_place, copies=False)
        if turned is not None:
            return turned
    return _by(graph, op, _of_each_image if first else _of_all_places)


def _by(graph: Graph, op: Op, written: _Way, copies: bool = True) -> Finding | None:
    """The graph with a convolution written in a way. copies: whether its result may be copied as the reference's lies."""
    edit = Editor(graph, op)
    weight = edit.shaped(op.args[1], edit.tensor(op.args[1]).shape[:2])
    by = written(edit, op.args[0], weight, argument(op, 2, "bias"))
    return edit.relaid(f"{op.name}, of one tap, is a product of matrices", (op.name,), by, copies)


def _of_each_image(edit: Editor, item: Ref, weight: Ref, bias: Ref | None) -> Ref:
    """The weight times each image's channels and places, which lie in order."""
    batch, _, *places = edit.tensor(item).shape
    outer, inner = edit.tensor(weight).shape
    flat = product(tuple(places))
    made = edit.columns(weight, edit.shaped(item, (batch, inner, flat)), bias, (batch, outer, flat), "product")
    return edit.shaped(made, (batch, outer, *places))


def _of_each_place(edit: Editor, item: Ref, weight: Ref, bias: Ref | None) -> Ref:
    """A layer of the channels, which come first; the result's lie last."""
    batch, inner, *places = edit.tensor(item).shape
    outer, flat = edit.tensor(weight).shape[0], product(tuple(places))
    across = edit.permuted(edit.shaped(item, (batch, inner, flat)), (0, 2, 1), "across")
    made = edit.add("aten.linear.default", (across, weight, bias), (batch, flat, outer), "layer")
    return edit.shaped(edit.permuted(made, (0, 2, 1), "turned"), (batch, outer, *places))


def _is_read_by_windows(graph: Graph, value: str) -> bool:
    """Whether all that a value goes to, by functions of each element or channel, are the library's convolutions of several
    taps, which it does on channels that lie last."""
    readers = graph.readers(value)
    if value in graph.results() or not readers:
        return False
    for op in map(graph.by_name.__getitem__, readers):
        if op.target in CONVOLUTIONS:
            wide = CONVOLUTIONS[op.target] > 1 and argument(op, GROUPS_AT, "groups", 1) == 1
            if op.args[0] != Ref(value) or not wide or mixes_each_place(graph, op):
                return False
        elif not keeps_places(graph, op) or not _is_read_by_windows(graph, op.outputs[0]):
            return False
    return True


def _of_all_places(edit: Editor, item: Ref, weight: Ref, bias: Ref | None) -> Ref:
    """A layer of the channels, which lie last; the result's lie so, too."""
    batch, _, *places = edit.tensor(item).shape
    rank, outer = len(places), edit.tensor(weight).shape[0]
    moved = edit.permuted(item, last_channels(rank + 2), "turned")
    made = edit.add(
        "aten.linear.default", (moved, weight, *([] if bias is None else [bias])), (batch, *places, outer), "layer"
    )
    return edit.permuted(made, (0, rank + 1, *range(1, rank + 1)), "turned")


ONE_TAP: tuple[Rule, ...] = (as_product,)
