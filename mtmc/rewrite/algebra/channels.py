"""channels: a depthwise convolution between others whose channels lie last reads its operand so, too.

Proof. A copy has the elements of what it is a copy of, and a permutation and its opposite are none.

What it is for: blocks that convolve each channel by itself and then norm and mix the channels of each place (ConvNeXt and
its kin). Channels first, a kernel reads one element a tap and thread, and the norm behind it reads across. With channels
last neighbours are channels of one place: a thread reads eight of them a tap, and the same kernel norms them. The copy of
the operand, which is read once for each tap, is small beside that; that of the weights is kept between calls. Where it is
another convolution of one tap that mixes the channels (a Conformer's), it becomes a layer of what lies so, as does one
before, with a gate between them if there is one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, GROUPS_AT
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.algebra.identities import turned_back
from mtmc.rewrite.algebra.joined import FEATURES
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.algebra.one_tap import as_product, is_of_one_tap
from mtmc.rewrite.algebra.parted import gated_halves
from mtmc.rewrite.algebra.turned import keeps_places
from mtmc.rewrite.algebra.turns import TURNS, order_of
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Tensor, Varying, last_channels, lies_channels_last
from mtmc.rewrite.operators.steps import argument

LEAST_CHANNELS = 16
"""At the full shapes: of fewer, a thread finds no neighbours to read at once."""


def _channels_last(graph: Graph, op: Op) -> Finding | None:
    operands = _depthwise(graph, op)
    if operands is None or op.args[1].name not in graph.parameters or (ways := _ways(graph, op)) is None:
        return None
    x, rank = operands[0], len(operands[0].shape) - 2
    edit, moved = Editor(graph, op), op.args[0]
    if x.contiguous:
        moved = _copied(edit, moved, last_channels(rank + 2), "last")
    elif not lies_channels_last(x):
        return None
    taps = _copied(edit, op.args[1], (*range(2, rank + 2), 1, 0), "taps")
    made = edit.add(op.target, (moved, taps, *op.args[2:]), graph.values[op.outputs[0]].shape, "sum", op.kwargs)
    found = edit.replaced(f"{op.name} takes its channels last", (op.name,), {op.outputs[0]: made})
    mixing = {name for name in ways if not _is_last(graph, graph.by_name[name])}  # become layers, see `_mixing`
    lying = laid_out(found.graph, [moved.name, taps.name, made.name], mixing)
    return None if lying is None else _handed_on(Finding(found.sentence, found.ops, lying), ways)


def _depthwise(graph: Graph, op: Op) -> tuple[Tensor, Tensor] | None:
    """Operand and weight of a convolution of each channel by itself; else None."""
    rank = CONVOLUTIONS.get(op.target)
    if rank is None or not isinstance(op.args[0], Ref) or not isinstance(op.args[1], Ref):
        return None
    x, weight = (graph.values.get(item.name) for item in op.args[:2])
    groups = argument(op, GROUPS_AT, "groups", 1)
    if x is None or weight is None or len(x.shape) != rank + 2 or not x.is_float:
        return None
    each = groups.values if isinstance(groups, Varying) else (groups,) * len(graph.variants)
    return (x, weight) if {each, weight.shape[0]} == {x.shape[1]} and x.shape[1][0] >= LEAST_CHANNELS else None


def _ways(graph: Graph, op: Op) -> tuple[str, ...] | None:
    """The ops that mix the channels of what a convolution makes, or put them last. None unless every way from it leads there
    by functions of each element, or channel, alone."""
    found, todo = list[str](), [op.outputs[0]]
    while todo:
        value = todo.pop()
        if value in graph.results() or not (readers := list(dict.fromkeys(graph.readers(value)))):
            return None
        for reader in map(graph.by_name.__getitem__, readers):
            if _is_last(graph, reader) or is_of_one_tap(graph, reader):
                found.append(reader.name)
            elif keeps_places(graph, reader):
                todo.append(reader.outputs[0])
            else:
                return None
    return tuple(found)


def _handed_on(found: Finding, ways: tuple[str, ...]) -> Finding | None:
    """With a copy whose channels lie last for each convolution that is to be a layer, where they do not lie so already."""
    settled = set(ways)
    for name in ways:
        graph = found.graph
        reader = graph.by_name[name]
        item = reader.args[0]
        if _is_last(graph, reader) or lies_channels_last(graph.values[item.name]):
            continue
        edit = Editor(graph, reader)
        copy = _copied(edit, item, last_channels(len(graph.values[item.name].shape)), "last")
        made = edit.add(
            reader.target, (copy, *reader.args[1:]), graph.values[reader.outputs[0]].shape, "mixed", reader.kwargs
        )
        more = edit.replaced(found.sentence, found.ops, {reader.outputs[0]: made})
        settled.add(made.name)
        lying = laid_out(more.graph, [copy.name], settled)
        if lying is None:
            return None
        found = Finding(found.sentence, found.ops, replace(lying, found=graph.found))
    return found


def _mixing(graph: Graph, op: Op) -> Finding | None:
    """A convolution of one tap of channels that lie last as a layer, in a graph in which depthwise ones take them so."""
    if op.target not in CONVOLUTIONS or not _has_channels_last(graph):
        return None
    x = graph.values.get(op.args[0].name) if isinstance(op.args[0], Ref) else None
    return as_product(graph, op) if x is not None and lies_channels_last(x) else None


def _in_order_already(graph: Graph, op: Op) -> Finding | None:
    """A copy of what lies in that order by now."""
    if op.target != IN_ORDER or not graph.values[op.args[0].name].contiguous or op.outputs[0] in graph.results():
        return None
    return Editor(graph, op).finish(f"{op.name} copies what lies so already", (op.name,), op.args[0])


def _gated(graph: Graph, op: Op) -> Finding | None:
    """The halves of a layer in such a graph."""
    return gated_halves(graph, op) if op.target in FEATURES and _has_channels_last(graph) else None


def _turned_back(graph: Graph, op: Op) -> Finding | None:
    """A permutation and its opposite in such a graph, which a kernel of a product would not take in."""
    return turned_back(graph, op) if op.target in TURNS and _has_channels_last(graph) else None


def _has_channels_last(graph: Graph) -> bool:
    """Whether a convolution of each channel by itself takes channels that lie last."""
    return any(
        found is not None and lies_channels_last(found[0]) for found in map(partial(_depthwise, graph), graph.ops)
    )


def _is_last(graph: Graph, op: Op) -> bool:
    """Whether an op puts the channels last."""
    order = order_of(graph, op)
    return order is not None and order == list(last_channels(len(order)))


def _copied(edit: Editor, item: Ref, order: tuple[int, ...], hint: str) -> Ref:
    """A value in the shape that it has, its elements in memory in that order of its dimensions."""
    seen = edit.permuted(item, order, hint)
    copy = edit.add(IN_ORDER, (seen,), edit.tensor(seen).shape, f"{hint}_in_order")
    return edit.permuted(copy, [order.index(dim) for dim in range(len(order))], hint)


CHANNELS: tuple[Rule, ...] = (_channels_last, _mixing, _gated, _in_order_already, _turned_back)
