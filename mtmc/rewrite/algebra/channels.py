"""channels: a depthwise convolution between others whose channels lie last reads its operand so, too.

Proof. A copy has the elements of what it is a copy of, and a permutation and its opposite are none.

What it is for: blocks that convolve each channel by itself and then norm and mix the channels of each place (ConvNeXt and
its kin). Channels first, a kernel reads one element a tap and thread, and the norm behind it reads across. With channels
last neighbours are channels of one place: a thread reads eight of them a tap, and the same kernel norms them. The copy of
the operand, which is read once for each tap, is small beside that; that of the weights is kept between calls.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Varying
from mtmc.rewrite.operators.steps import argument

CONVOLUTIONS = {"aten.conv1d.default": 1, "aten.conv2d.default": 2, "aten.conv3d.default": 3}
STRIDE_AT, PADDING_AT, DILATION_AT, GROUPS_AT = 3, 4, 5, 6
"""Where these stand among a convolution's arguments."""
LEAST_CHANNELS = 16
"""At the full shapes: of fewer, a thread finds no neighbours to read at once."""


def each_of(sizes: Any) -> tuple[Any, ...]:
    """A setting of each dimension of places, of which one number stands for all."""
    return tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)


def _channels_last(graph: Graph, op: Op) -> Finding | None:
    rank = CONVOLUTIONS.get(op.target)
    if rank is None or not isinstance(op.args[0], Ref) or op.args[1].name not in graph.parameters:
        return None
    x, weight = (graph.values.get(item.name) for item in op.args[:2])
    groups = argument(op, GROUPS_AT, "groups", 1)
    if x is None or weight is None or not x.contiguous or len(x.shape) != rank + 2 or not x.is_float:
        return None
    each = groups.values if isinstance(groups, Varying) else (groups,) * len(graph.variants)
    if {each, weight.shape[0]} != {x.shape[1]} or x.shape[1][0] < LEAST_CHANNELS:
        return None
    readers = [graph.by_name[name] for name in graph.readers(op.outputs[0])]
    if op.outputs[0] in graph.results() or not readers or not all(_is_last(reader, rank) for reader in readers):
        return None
    edit, places = Editor(graph, op), range(2, rank + 2)
    moved = _copied(edit, op.args[0], [0, *places, 1], [0, rank + 1, *range(1, rank + 1)], "last")
    taps = _copied(edit, op.args[1], [*places, 1, 0], [rank + 1, rank, *range(rank)], "taps")
    made = edit.add(op.target, (moved, taps, *op.args[2:]), graph.values[op.outputs[0]].shape, "sum", op.kwargs)
    found = edit.replaced(f"{op.name} takes its channels last", (op.name,), {op.outputs[0]: made})
    lying = laid_out(found.graph, [moved.name, taps.name])
    return None if lying is None else Finding(found.sentence, found.ops, lying)


def _is_last(reader: Op, rank: int) -> bool:
    """Whether an op puts the channels last."""
    if reader.target == "aten.permute.default":
        return [dim % (rank + 2) for dim in reader.args[1]] == [0, *range(2, rank + 2), 1]
    turned = reader.target == "aten.transpose.int" and {dim % (rank + 2) for dim in reader.args[1:3]} == {1, 2}
    return turned and rank == 1


def _copied(edit: Editor, item: Ref, order: list[int], back: list[int], hint: str) -> Ref:
    """A value in the shape that it has, its elements in another order in memory."""
    seen = edit.permuted(item, order, hint)
    copy = edit.add(IN_ORDER, (seen,), edit.tensor(seen).shape, f"{hint}_in_order")
    return edit.permuted(copy, back, hint)


CHANNELS: tuple[Rule, ...] = (_channels_last,)
