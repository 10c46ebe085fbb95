"""pools: a pool of a pool, the mean of neighbouring features of a linear layer, and means of what mixes channels.

Proofs. Windows of a and then of b elements, side by side without padding, are windows of a b elements: the second pool's
window q holds the first one's windows b q to b q + b - 1, which hold the elements a b q to a b q + a b - 1, and both leave
out the same elements at the end, since floor(floor(n / a) / b) = floor(n / (a b)). The maximum of maxima is the maximum of
all; the mean of means of equally many is the mean of all.

With y[m, n] = sum_k x[m, k] w[n, k] + b[n], the mean of p neighbouring y is sum_k x[m, k] (the mean of p neighbouring
w[n, k]) plus the mean of p neighbouring b[n]: a linear layer with a p-th of the features.

A convolution of one tap is linear in each place: y[o, p] = sum_i w[o, i] x[i, p] + b[o]. The mean of y over the p of a
window is sum_i w[o, i] (the mean of x[i, p]) + b[o]: the same convolution of the means, at as many places as windows.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, mixes_each_place
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

_RANKS = {f"aten.{kind}_pool{n}d.default": n for kind in ("max", "avg") for n in (1, 2, 3)}


def _window(op: Op) -> tuple[int, ...] | None:
    """The window of a pool whose windows lie side by side without padding; None for any other."""
    rank, average = _RANKS[op.target], "avg" in op.target
    size, stride = _spread(op.args[1], rank), argument(op, 2, "stride", ())
    ones = (1,) * rank
    dilation = ones if average else _spread(argument(op, 4, "dilation", 1), rank)
    ceil = argument(op, 4 if average else 5, "ceil_mode", False)
    divisor = argument(op, 6, "divisor_override") if average else None
    if stride not in ((), None) and _spread(stride, rank) != size:
        return None
    if _spread(argument(op, 3, "padding", 0), rank) != (0,) * rank or dilation != ones or ceil or divisor is not None:
        return None
    return size


def _spread(item: Any, rank: int) -> tuple[int, ...] | None:
    """One number for each dimension, or as many as there are."""
    items = item if isinstance(item, tuple) else (item,)
    if not items or not all(isinstance(each, int) for each in items):
        return None
    return tuple(items) * rank if len(items) == 1 else tuple(items)


def _of_a_pool(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _RANKS:
        return None
    first = producer(graph, op.args[0], op.target)
    inner, outer = _window(first) if first else None, _window(op)
    if first is None or inner is None or outer is None:
        return None
    both = tuple(a * b for a, b in zip(inner, outer, strict=True))
    edit = Editor(graph, op)
    by = edit.add(op.target, (first.args[0], both, both), graph.values[op.outputs[0]].shape, "both")
    sentence = f"{first.name} and {op.name} together are one pool over windows of {' x '.join(map(str, both))}"
    return edit.finish(sentence, (first.name, op.name), by)


def _of_features(graph: Graph, op: Op) -> Finding | None:
    """linear, unsqueeze(1), avg_pool1d, squeeze(1)."""
    pool = producer(graph, op.args[0] if op.args else None, "aten.avg_pool1d.default")
    if op.target != "aten.squeeze.dim" or op.args[1] != 1 or pool is None or _window(pool) is None:
        return None
    spread = producer(graph, pool.args[0], "aten.unsqueeze.default")
    linear = producer(graph, spread.args[0], "aten.linear.default") if spread and spread.args[1] == 1 else None
    if spread is None or linear is None or len(graph.values[linear.outputs[0]].shape) != 2 or linear.kwargs:
        return None
    (count,) = _window(pool) or (0,)
    weight, bias = linear.args[1], argument(linear, 2, "bias")
    edit, shape = Editor(graph, op), graph.values[op.outputs[0]].shape
    one = tuple(1 for _ in graph.variants)
    inner = graph.values[weight.name].shape[1]
    image = edit.add("aten.unsqueeze.default", (weight, 0), (one, *graph.values[weight.name].shape), "image")
    pooled = edit.add("aten.avg_pool2d.default", (image, (count, 1), (count, 1)), (one, shape[1], inner), "means")
    operands = [linear.args[0], edit.add("aten.squeeze.dim", (pooled, 0), (shape[1], inner), "operand")]
    if isinstance(bias, Ref):
        row = edit.add("aten.unsqueeze.default", (bias, 0), (one, *graph.values[bias.name].shape), "row")
        means = edit.add("aten.avg_pool1d.default", (row, (count,), (count,)), (one, shape[1]), "bias_means")
        operands.append(edit.add("aten.squeeze.dim", (means, 0), (shape[1],), "bias"))
    by = edit.add("aten.linear.default", tuple(operands), shape, "product")
    sentence = (
        f"the means of {count} neighbouring features of {linear.name} are a linear layer with the means of its weights"
    )
    return edit.finish(sentence, (linear.name, spread.name, pool.name, op.name), by)


def _of_mixed_channels(graph: Graph, op: Op) -> Finding | None:
    """avg_pool behind a convolution of one tap."""
    if op.target not in _RANKS or "avg" not in op.target:
        return None
    layer, size = producer(graph, op.args[0], *CONVOLUTIONS), _window(op)
    if layer is None or size is None or CONVOLUTIONS[layer.target] != _RANKS[op.target] or layer.kwargs:
        return None
    if not mixes_each_place(graph, layer):
        return None
    edit, shape, [x, *rest] = Editor(graph, op), graph.values[op.outputs[0]].shape, layer.args
    means = edit.add(op.target, (x, size, size), (*graph.values[x.name].shape[:2], *shape[2:]), "means")
    by = edit.add(layer.target, (means, *rest), shape, "mixed")
    return edit.finish(f"{op.name} of {layer.name} is that of what it mixes", (layer.name, op.name), by)


POOLS: tuple[Rule, ...] = (_of_a_pool, _of_features, _of_mixed_channels)
