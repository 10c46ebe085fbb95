"""turned: layers along the last dimension but one, which are written as layers between two transpositions.

Proof. (X^T W^T + 1 b^T)^T = W X + b 1^T, whatever X is, and a function of each element alone commutes with a transposition.
So all that stands between two transpositions of the last two dimensions, if it is layers and such functions, can be done
without them: each layer is its weight times what lies there already.

What it is for: a model that mixes places of a sequence or an image by a layer (MLP-Mixer and its kin). Neither the operand
is copied in another order then, nor are results read or written across their rows; and where places are few (196 patches),
no matrix has rows that do not begin at multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.algebra.turns import TURNS, order_of
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.elementwise import POINTWISE
from mtmc.rewrite.operators.steps import argument

_LAYER = "aten.linear.default"
ALONE = frozenset({*POINTWISE, "aten.gelu.default", "aten.relu.default", "aten.neg.default", "aten.abs.default"})
"""Functions of each element alone."""
TRAINING_AT = 5
"""Where it stands among the arguments of a batch norm."""
_MOST = 12
"""Ops between the two transpositions."""


def _turned(graph: Graph, op: Op) -> Finding | None:
    steps = _between(graph, op)
    if steps is None or not any(step.target == _LAYER for step in steps):
        return None
    first = graph.by_name[graph.producer[steps[0].args[0].name]]
    edit, item = Editor(graph, op), first.args[0]
    for step in steps:
        *batch, rows, columns = graph.values[step.outputs[0]].shape
        item = _without(edit, step, item, (*batch, columns, rows))
    layers = [step.name for step in steps if step.target == _LAYER]
    names = f"{', '.join(layers[:-1])} and {layers[-1]} go" if len(layers) > 1 else f"{layers[0]} goes"
    old = (first.name, *(step.name for step in steps), op.name)
    found = edit.replaced(f"{names} along the other dimension", old, {op.outputs[0]: item})
    lying = laid_out(found.graph, [item.name])
    return None if lying is None else replace(found, graph=lying)


def _between(graph: Graph, last: Op) -> list[Op] | None:
    """The ops between a transposition and the one before that it undoes, in order; None where there is none, or where
    anything else reads what is between, or stands there."""
    if not _turns(graph, last):
        return None
    found, item = list[Op](), last.args[0]
    kind = graph.values[last.outputs[0]].dtype
    while len(found) < _MOST:
        op = producer(graph, item, *TURNS, _LAYER, *ALONE)
        if op is None or graph.values[op.outputs[0]].dtype != kind:
            return None
        if op.target in TURNS:
            operand = op.args[0]
            known = _turns(graph, op) and len(graph.values[operand.name].shape) > 2
            return found if known and found and graph.values[operand.name].dtype == kind else None
        others = [ref for ref in op.refs() if ref != op.args[0].name]
        if op.target == _LAYER:
            weight = graph.values.get(op.args[1].name)
            if weight is None or len(weight.shape) != 2 or weight.dtype != kind:
                return None
        elif others:
            return None
        found.insert(0, op)
        item = op.args[0]
    return None


def keeps_places(graph: Graph, op: Op) -> bool:
    """Whether an op is a function of each element of one value, or of each element and its channel."""
    if len({ref for ref in op.refs() if ref not in graph.parameters}) != 1:
        return False
    if op.target == "aten.batch_norm.default":
        return argument(op, TRAINING_AT, "training", True) is False
    return op.target in ALONE or op.target == "aten._native_batch_norm_legit_no_training.default"


def _turns(graph: Graph, op: Op) -> bool:
    """Whether an op changes the last two dimensions of a value for each other, and nothing else."""
    order = order_of(graph, op)
    return order is not None and len(order) > 1 and order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]


def _without(edit: Editor, step: Op, item: Any, shape: Any) -> Ref:
    """A step on its operand as it lies. shape: of its result so."""
    if step.target != _LAYER:
        return edit.add(step.target, (item, *step.args[1:]), shape, step.name, step.kwargs)
    return edit.columns(step.args[1], item, argument(step, 2, "bias"), shape, step.name)


TURNED: tuple[Rule, ...] = (_turned,)
