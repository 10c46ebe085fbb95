"""parted: a layer whose features are cut in two halves that meet again, as two layers with half of its weight each.

Proof. A feature of x W^T + b is a sum over one row of W and one element of b. So the first half of the features is the layer
with the first half of the rows, and the second that with the second; `glu` is the first times the sigmoid of the second.

What it is for: a gated layer whose gate and value are one weight (GLU, GEGLU and SwiGLU as many models keep them). Cut after
the product, its features go through memory twice; two layers of one operand and what joins them are one kernel, which writes
the half that is left.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of, of_module
from mtmc.rewrite.algebra.joined import FEATURES
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.algebra.turned import ALONE
from mtmc.rewrite.algebra.turns import order_of
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, lie_alike
from mtmc.rewrite.operators.steps import argument

_HALVES = ("aten.chunk.default", "aten.split.Tensor", "aten.split_with_sizes.default")
_GLU = "aten.glu.default"
_JOINS = ("aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor", "aten.maximum.default", "aten.minimum.default")


def gated_halves(graph: Graph, op: Op) -> Finding | None:
    """The rule. op: the layer."""
    if op.target not in FEATURES or not _is_layer(graph, op):
        return None
    order, turns, cut = _followed(graph, op)
    if cut is None or cut.target not in (_GLU, *_HALVES):
        return None
    rank, glu = len(order), cut.target == _GLU
    dim = argument(cut, 1, "dim", -1) if glu else argument(cut, 2, "dim", 0)
    if order[dim % rank] != rank - 1:
        return None
    whole = graph.values[op.outputs[0]].shape
    half = tuple(size // 2 for size in whole[-1])
    if any(size % 2 for size in whole[-1]) or not (glu or _meet(graph, cut, dim % rank, half)):
        return None
    edit = Editor(graph, op)
    first, second = (_half(edit, op, start, end, (*whole[:-1], half)) for start, end in ((0, 1), (1, 2)))
    if glu:
        gate = edit.add("aten.sigmoid.default", (second,), (*whole[:-1], half), "gate")
        gated = edit.add("aten.mul.Tensor", (first, gate), (*whole[:-1], half), "gated")
        made = [edit.permuted(gated, order, "turned")]
    else:
        made = [edit.permuted(each, order, "turned") for each in (first, second)]
    pairs = dict(zip(cut.outputs, made, strict=True))
    found = edit.replaced(f"the halves of {op.name} are layers of their own", (op.name, *turns, cut.name), pairs)
    if all(lie_alike(edit.tensor(new), graph.values[old]) for old, new in pairs.items()):
        return found
    lying = laid_out(found.graph, [each.name for each in made])
    return None if lying is None else Finding(found.sentence, found.ops, lying)


def _is_layer(graph: Graph, op: Op) -> bool:
    """Whether an op is a product with a matrix of the module, to which all features go in the type of its operand."""
    held = [op.args[1], argument(op, 2, "bias")]
    if not all(isinstance(each, Ref) and of_module(graph, each.name) for each in held if each is not None):
        return False
    weight, x = (graph.values.get(each.name) for each in (op.args[1], op.args[0]))
    result = graph.values.get(op.outputs[0])
    if weight is None or x is None or result is None or len(weight.shape) != 2 or not result.is_float:
        return False
    return {weight.dtype, x.dtype} == {result.dtype}


def _followed(graph: Graph, op: Op) -> tuple[list[int], list[str], Op | None]:
    """The order that a layer's dimensions are turned to, the ops that turn them, and what reads the result then; None
    where more than one op reads it, or it is handed out."""
    value, turns = op.outputs[0], list[str]()
    order = list(range(len(graph.values[value].shape)))
    while (reader := _only_reader(graph, value)) is not None and (moved := order_of(graph, reader)) is not None:
        order = [order[dim] for dim in moved]
        turns.append(reader.name)
        value = reader.outputs[0]
    return order, turns, reader


def _only_reader(graph: Graph, value: str) -> Op | None:
    """The op that reads a value, where there is one and forward does not return it."""
    readers = set(graph.readers(value))
    return None if value in graph.results() or len(readers) != 1 else graph.by_name[readers.pop()]


def _meet(graph: Graph, cut: Op, dim: int, half: tuple[int, ...]) -> bool:
    """Whether two equal parts come together in one op, each after functions of its elements alone."""
    if len(cut.outputs) != 2 or any(graph.values[part].shape[dim] != half for part in cut.outputs):
        return False
    ends: list[Any] = []
    for value in cut.outputs:
        reader = _only_reader(graph, value)
        while reader is not None and reader.target in ALONE and len(reader.refs()) == 1:
            reader = _only_reader(graph, reader.outputs[0])
        ends.append(reader)
    return ends[0] is not None and ends[0] is ends[1] and ends[0].target in _JOINS


def _half(edit: Editor, op: Op, start: int, end: int, shape: Shape) -> Ref:
    """A layer of half of the features. start, end: in halves of them."""
    across, weight, bias = FEATURES[op.target], op.args[1], argument(op, 2, "bias")
    ends = [number_of(tuple(size * each for size in shape[-1])) for each in (start, end)]
    whole = edit.tensor(weight)
    form = tuple(shape[-1] if axis == across else size for axis, size in enumerate(whole.shape))
    rows = edit.add(
        "aten.slice.Tensor",
        (weight, across, *ends),
        form,
        "weight",
        strides=whole.lying if across else (),
        dtype=whole.dtype,
    )
    operands = [op.args[0], rows]
    if isinstance(bias, Ref):
        operands.append(edit.add("aten.slice.Tensor", (bias, 0, *ends), (shape[-1],), "bias"))
    return edit.add(op.target, tuple(operands), shape, "half")


PARTED: tuple[Rule, ...] = (gated_halves,)
