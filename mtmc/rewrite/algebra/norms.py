"""norms: a batch norm in evaluation, in the weights of the layer before.

Proof. In evaluation a batch norm is z[o] = (y[o] - mean[o]) s[o] + beta[o] with s[o] = gamma[o] / sqrt(var[o] + eps), for
each channel o. For y[o] = sum_i w[o, i] x[i] + b[o], be it a linear layer or a convolution,

    z[o] = sum_i (s[o] w[o, i]) x[i] + (b[o] - mean[o]) s[o] + beta[o]

The weights are scaled in each call, so the version is right for any weights.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer, sizes
from mtmc.rewrite.graph import Graph, Op, Ref, Shape
from mtmc.rewrite.operators.steps import argument

_LAYERS = {
    "aten.linear.default": 0,
    **{f"aten.conv{n}d.default": 0 for n in (1, 2, 3)},
    "aten.conv_transpose1d.default": 1,
    **{f"aten.conv_transpose{n}d.input": 1 for n in (2, 3)},
}
"""The dimension of a layer's weight that its channels of output are."""
_NORMS = {
    "aten.batch_norm.default": ((0, 1, 2, 3, 4, 7), 5),
    "aten._native_batch_norm_legit_no_training.default": ((0, 1, 2, 3, 4, 6), None),
}
"""Where input, weight, bias, mean, variance and eps stand, and whether it trains."""


def _folded(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _NORMS:
        return None
    places, training = _NORMS[op.target]
    x, gamma, beta, mean, var, eps = (op.args[at] for at in places)
    layer = producer(graph, x, *_LAYERS)
    if layer is None or (training is not None and op.args[training]) or not isinstance(mean, Ref):
        return None
    weight, bias, axis = layer.args[1], argument(layer, 2, "bias"), _LAYERS[layer.target]
    if layer.kwargs or (axis == 1 and argument(layer, 6, "groups", 1) != 1):
        return None
    edit, channels = Editor(graph, op), graph.values[mean.name].shape
    if graph.values[mean.name].dtype != graph.values[weight.name].dtype:
        return None
    scale = edit.add("aten.rsqrt.default", (_add(edit, var, eps, channels),), channels, "deviation")
    if isinstance(gamma, Ref):
        scale = edit.add("aten.mul.Tensor", (scale, gamma), channels, "scale")
    shape = graph.values[weight.name].shape
    one = tuple(1 for _ in graph.variants)
    along = tuple(size if dim == axis else one for dim, size in enumerate(shape))
    if shape[axis] != channels[0]:
        return None
    spread = edit.add("aten.reshape.default", (scale, sizes(along)), along, "spread")
    scaled = edit.add("aten.mul.Tensor", (weight, spread), shape, "weight")
    centre: Ref = mean
    if isinstance(bias, Ref):
        centre = edit.add("aten.sub.Tensor", (mean, bias), channels, "centre")
    shift = edit.add("aten.mul.Tensor", (centre, scale), channels, "moved")
    if isinstance(beta, Ref):
        shift = edit.add("aten.sub.Tensor", (beta, shift), channels, "shift")
    else:
        shift = edit.add("aten.neg.default", (shift,), channels, "shift")
    arguments: tuple[Any, ...] = (layer.args[0], scaled, shift, *layer.args[3:])
    by = edit.add(layer.target, arguments, graph.values[op.outputs[0]].shape, layer.name)
    return edit.finish(f"{op.name} scales the weights of {layer.name}", (layer.name, op.name), by)


def _add(edit: Editor, var: Ref, eps: float, shape: Shape) -> Ref:
    return edit.add("aten.add.Tensor", (var, eps), shape, "raised")


NORMS: tuple[Rule, ...] = (_folded,)
