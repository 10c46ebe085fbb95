"""pixels: a convolution of shuffled pixels, before the shuffle.

Proof. Shuffled by r, channel c at (r i + a', r j + b') is channel (c r + a') r + b' at (i, j) of what was shuffled. A
convolution with taps u from -s to s makes of it at r i + a the sum over c and u of W[o, c, u] at r i + a + u. With
a + u = r p + a', p from -h to h with h = ceil(s / r), that is a sum over channels (c, a', b') and taps p of what was
shuffled: a convolution with the weights W'[(o, a, b), (c, a', b'), p, q] = W[o, c, r p + a' - a, r q + b' - b], zero where
there is no such tap. Its channels (o, a, b), shuffled, are the result. Outside of the one image is outside of the other.

For each (a, b) W' is W amid zeros, (2 h + 1) r wide, with its pixels unshuffled: made of weights alone, it is kept.

What it is for: the last layers of super-resolution make three colours of images that were enlarged by a shuffle. Instead of
those, which are written and read at the full width, the few channels of the colours are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.algebra.convolutions import DILATION_AT, GROUPS_AT, PADDING_AT, STRIDE_AT, each_of
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

_CONVOLUTION, _SHUFFLE = "aten.conv2d.default", "aten.pixel_shuffle.default"
MOST_CHANNELS = 64
"""Of the convolution afterwards: it multiplies r^2 times as often, half of it zeros, which is nothing where it waits for
memory."""


def _unshuffled(graph: Graph, op: Op) -> Finding | None:
    shuffle = producer(graph, op.args[0], _SHUFFLE) if op.target == _CONVOLUTION else None
    if shuffle is None or not isinstance(shuffle.args[0], Ref) or not isinstance(shuffle.args[1], int):
        return None
    weight, factor, bias = op.args[1], shuffle.args[1], argument(op, 2, "bias")
    reach = _reach(graph, op)
    if reach is None or not isinstance(weight, Ref) or weight.name not in graph.parameters or factor < 2:
        return None
    edit, made = Editor(graph, op), graph.values[op.outputs[0]]
    outer = graph.values[weight.name].shape[0]
    batch, _, *places = graph.values[shuffle.args[0].name].shape
    few = all(each * factor**2 <= MOST_CHANNELS for each in outer)
    if not few or len(places) != 2 or graph.values[weight.name].dtype != made.dtype:
        return None
    taps = -(-reach // factor)
    weights = _weights(edit, weight, factor, reach, taps)
    biases = None if bias is None else _stacked(edit, [bias] * factor**2)
    channels = _scaled(outer, factor**2)
    settings = ((1, 1), (taps, taps))
    sums = edit.add(_CONVOLUTION, (shuffle.args[0], weights, biases, *settings), (batch, channels, *places), "sums")
    by = edit.add(_SHUFFLE, (sums, factor), made.shape, "shuffled")
    sentence = f"{op.name} of shuffled pixels is shuffled itself"
    return edit.finish(sentence, (shuffle.name, op.name), by)


def _reach(graph: Graph, op: Op) -> int | None:
    """How many places to each side a convolution sees, where its result is as large as its operand; else None."""
    weight = graph.values.get(op.args[1].name) if isinstance(op.args[1], Ref) else None
    settings = ((STRIDE_AT, "stride"), (DILATION_AT, "dilation"), (GROUPS_AT, "groups"))
    plain = all(set(each_of(argument(op, at, name, 1))) == {1} for at, name in settings)
    reaches = set(each_of(argument(op, PADDING_AT, "padding", 0)))
    if weight is None or not plain or len(reaches) != 1:
        return None
    [reach] = reaches
    sizes = {size for sizes in weight.shape[2:] for size in sizes}
    return reach if isinstance(reach, int) and sizes == {2 * reach + 1} else None


def _weights(edit: Editor, weight: Ref, factor: int, reach: int, taps: int) -> Ref:
    """The weights of the convolution before the shuffle."""
    outer, inner, *_ = edit.tensor(weight).shape
    wide, size = factor * (2 * taps + 1), 2 * reach + 1
    ones = tuple(1 for _ in edit.graph.variants)
    across, few = _scaled(ones, wide), _scaled(ones, 2 * taps + 1)
    parts = []
    for down in range(factor):
        for right in range(factor):
            before = [at - reach + factor * taps for at in (right, down)]
            margins = tuple(margin for first in before for margin in (first, wide - size - first))
            padded = edit.add("aten.pad.default", (weight, margins), (outer, inner, across, across), "amid")
            shape = (outer, _scaled(inner, factor**2), few, few)
            parts.append(edit.add("aten.pixel_unshuffle.default", (padded, factor), shape, "unshuffled"))
    return _stacked(edit, parts)


def _stacked(edit: Editor, parts: Sequence[Ref]) -> Ref:
    """Those of each outer channel side by side, as channels."""
    outer, *rest = edit.tensor(parts[0]).shape
    count = _scaled(tuple(1 for _ in outer), len(parts))
    stacked = edit.add("aten.stack.default", (tuple(parts), 1), (outer, count, *rest), "stacked")
    return edit.shaped(stacked, (_scaled(outer, len(parts)), *rest))


def _scaled(size: tuple[int, ...], by: int) -> tuple[int, ...]:
    return tuple(each * by for each in size)


PIXELS: tuple[Rule, ...] = (_unshuffled,)
