"""joined: several layers of one operand as one product with their weights one behind the other.

Proof. Every feature of x W^T + b is a sum over a row of W and an element of b alone. So the features of several layers are
those of one layer with the rows of all their weights, and elements of all their biases (0 where a layer has none). What
each of them gave is a slice of it.

What it is for: queries, keys and values, of which the queries are wider where heads share keys; the gate of a gated MLP.
One product with more columns keeps a GPU busy that each of several does not, and reads the operand once. The weights are
put together in each call unless `pack` keeps them.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, Size
from mtmc.rewrite.operators.steps import argument

FEATURES = {"aten.linear.default": 0, "aten.matmul.default": 1, "aten.mm.default": 1}
"""Products, and the dimension of their right operand along which the features lie."""
ALIGNED = 16
"""Bytes of which a layer's features are a multiple: else no row of the result lies as the library's fast kernels like it."""


def _joined(graph: Graph, op: Op) -> Finding | None:
    layers = _layers(graph, op)
    if len(layers) < 2 or layers[0] is not op:
        return None
    across, edit = FEATURES[op.target], Editor(graph, op)
    widths = [graph.values[each.outputs[0]].shape[-1] for each in layers]
    whole = tuple(map(sum, zip(*widths, strict=True)))
    weights = [each.args[1] for each in layers]
    form = graph.values[weights[0].name].shape
    joined = tuple(whole if axis == across else size for axis, size in enumerate(form))
    operands: tuple[Any, ...] = (op.args[0], edit.add("aten.cat.default", (tuple(weights), across), joined, "weights"))
    biases = [argument(each, 2, "bias") for each in layers]
    given = next((bias for bias in biases if isinstance(bias, Ref)), None)
    if given is not None:
        parts = tuple(_bias(edit, given, bias, width) for bias, width in zip(biases, widths, strict=True))
        operands += (edit.add("aten.cat.default", (parts, 0), (whole,), "biases"),)
    lead = graph.values[op.outputs[0]].shape[:-1]
    product = edit.add(op.target, operands, (*lead, whole), "joined")
    strides, ends = _strides((*lead, whole)), [number_of(end) for end in _ends(widths)]
    pairs = {}
    for at, (each, width) in enumerate(zip(layers, widths, strict=True)):
        cut = (product, len(lead), ends[at], ends[at + 1])
        pairs[each.outputs[0]] = edit.add("aten.slice.Tensor", cut, (*lead, width), "features", strides=strides)
    names = [each.name for each in layers]
    sentence = f"{', '.join(names[:-1])} and {names[-1]} are one product with their weights one behind the other"
    found = edit.replaced(sentence, tuple(names), pairs)
    lying = laid_out(found.graph, [each.name for each in pairs.values()])
    return None if lying is None else Finding(sentence, found.ops, lying)


def _layers(graph: Graph, op: Op) -> list[Op]:
    """The layers that can be joined with an op, itself included, in order: of its operand, with weights of the module."""
    if op.target not in FEATURES or not isinstance(op.args[0], Ref) or op.args[0].name not in graph.values:
        return []
    return [each for name in graph.readers(op.args[0].name) if _fits(graph, op, each := graph.by_name[name])]


def _fits(graph: Graph, op: Op, other: Op) -> bool:
    if other.target != op.target or other.args[0] != op.args[0] or other.outputs[0] in graph.results():
        return False
    changed = {mutation.target for mutation in graph.mutations}
    held = [other.args[1], argument(other, 2, "bias")]
    if any(isinstance(each, Ref) and (each.name not in graph.parameters or each.name in changed) for each in held):
        return False
    weight, result = graph.values[other.args[1].name], graph.values[other.outputs[0]]
    if len(weight.shape) != 2 or {weight.dtype, graph.values[op.args[0].name].dtype} != {result.dtype}:
        return False
    return bool(result.is_float and result.shape[-1][0] * result.float_bytes % ALIGNED == 0)


def _bias(edit: Editor, given: Ref, bias: Any, width: Size) -> Ref:
    """A layer's bias, zeros where it has none. given: of another layer."""
    if isinstance(bias, Ref):
        return bias
    return edit.add("aten.new_zeros.default", (given, (number_of(width),)), (width,), "zeros")


def _ends(widths: list[Size]) -> list[Size]:
    """Where the layers' features begin and end."""
    ends = [(0,) * len(widths[0])]
    for width in widths:
        ends.append(tuple(a + b for a, b in zip(ends[-1], width, strict=True)))
    return ends


def _strides(shape: Shape) -> Shape:
    """Those of a contiguous tensor."""
    strides = [(1,) * len(shape[0])]
    for size in reversed(shape[1:]):
        strides.insert(0, tuple(a * b for a, b in zip(strides[0], size, strict=True)))
    return tuple(strides)


JOINED: tuple[Rule, ...] = (_joined,)
