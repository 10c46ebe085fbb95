"""statistics: a norm of channels or groups as its statistics, and elementwise work that knows them.

Proof. It is the definition. With the mean and the variance of what is normed together, z = (x - mean) / sqrt(var + eps),
scaled and shifted by channels. For a batch norm in training that is a batch norm in evaluation with those, and the running
statistics become

    mean' = m mean + (1 - m) mean_before, var' = m var n / (n - 1) + (1 - m) var_before

What it is for: a kernel that goes over channels or groups takes in nothing that reduces over something else. Apart from its
statistics the norm is elementwise, and a pool, a softmax or a mean behind it takes that in: what is between them need not
be written and read again.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, nodes_of
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, Varying
from mtmc.rewrite.operators.steps import argument

_TRAINED = "aten._native_batch_norm_legit_functional.default"
_NORMS = (_TRAINED, "aten.batch_norm.default")
_GROUPED = ((2, "weight", None), (3, "bias", None), (4, "eps", 1e-5))
"""Further arguments of a group norm: where they stand, what they are called and what they usually are."""
_FAR = 8
"""Elementwise ops between a norm and what reduces its result."""


def _of_channels(graph: Graph, op: Op) -> Finding | None:
    """A batch norm in training."""
    if op.target not in _NORMS:
        return None
    x, weight, bias, mean, variance, training, momentum, eps = op.args[:8]
    if not training or (op.target != _TRAINED and mean is not None) or not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    shape = graph.values[x.name].shape
    if not graph.used.isdisjoint(op.outputs[1:3]) or len(shape) < 2 or op.kwargs:
        return None
    edit, channels, dims = Editor(graph, op), (shape[1],), (0, *range(2, len(shape)))
    spread, centre = edit.pair("aten.var_mean.correction", (x, dims), channels, ("spread", "centre"), {"correction": 0})
    known = (x, weight, bias, centre, spread, False, 0.0, eps, False)
    pairs = {op.outputs[0]: edit.add("aten.batch_norm.default", known, graph.values[op.outputs[0]].shape, "known")}
    if op.target == _TRAINED:
        new = edit.add("aten.var.correction", (x, dims), channels, "unbiased", {"correction": 1})
        pairs[op.outputs[3]] = _followed(edit, centre, mean, momentum, channels)
        pairs[op.outputs[4]] = _followed(edit, new, variance, momentum, channels)
    return edit.replaced(_sentence(op), (op.name,), pairs)


def _of_groups(graph: Graph, op: Op) -> Finding | None:
    """A group norm."""
    if op.target != "aten.group_norm.default" or not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    x, groups = op.args[:2]
    weight, bias, eps = (argument(op, at, name, usual) for at, name, usual in _GROUPED)
    shape = graph.values[x.name].shape
    counts = groups.values if isinstance(groups, Varying) else (groups,) * len(shape[0])
    within = tuple(size // int(count) for size, count in zip(shape[1], counts, strict=True))
    return _normed(Editor(graph, op), x, (shape[0], tuple(map(int, counts)), within, *shape[2:]), (weight, bias, eps))


def _of_instances(graph: Graph, op: Op) -> Finding | None:
    """An instance norm by statistics of its input."""
    if op.target != "aten.instance_norm.default" or not op.args[5] or not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    x, weight, bias, mean, *_, eps = op.args[:8]
    return None if mean is not None else _normed(Editor(graph, op), x, graph.values[x.name].shape, (weight, bias, eps))


def _normed(edit: Editor, x: Ref, grouped: Shape, settings: tuple[Any, Any, float]) -> Finding | None:
    """A norm of what lies behind the first two dimensions of the grouped shape."""
    op, (weight, bias, eps) = edit.op, settings
    shape, one = edit.tensor(x).shape, (1,) * len(grouped[0])
    if not edit.tensor(x).contiguous or len(shape) < 3:
        return None
    kept = (*grouped[:2], *(one,) * (len(grouped) - 2))
    seen, dims = edit.shaped(x, grouped), tuple(range(2, len(grouped)))
    known = {"correction": 0, "keepdim": True}
    spread, centre = edit.pair("aten.var_mean.correction", (seen, dims), kept, ("spread", "centre"), known)
    scale = edit.add("aten.rsqrt.default", (edit.add("aten.add.Tensor", (spread, eps), kept, "raised"),), kept, "scale")
    apart = edit.add("aten.sub.Tensor", (seen, centre), grouped, "apart")
    made = edit.shaped(edit.add("aten.mul.Tensor", (apart, scale), grouped, "normal"), shape)
    along = (shape[1], *(one,) * (len(shape) - 2))
    for target, parameter in (("aten.mul.Tensor", weight), ("aten.add.Tensor", bias)):
        if isinstance(parameter, Ref):
            made = edit.add(target, (made, edit.shaped(parameter, along)), shape, "known")
    return edit.replaced(_sentence(op), (op.name,), {op.outputs[0]: made})


def _sentence(op: Op) -> str:
    return f"{op.name} is elementwise once its statistics are known"


def _followed(edit: Editor, new: Ref, before: Ref, momentum: float, shape: Shape) -> Ref:
    """A running statistic after one more."""
    kept = edit.add("aten.mul.Tensor", (before, 1 - momentum), shape, "kept")
    return edit.add(
        "aten.add.Tensor", (kept, edit.add("aten.mul.Tensor", (new, momentum), shape, "new")), shape, "running"
    )


def _is_reduced(graph: Graph, value: str, far: int) -> bool:
    """Whether all that reads a value are kernels, and one of them, or of what reads it elementwise, reduces it or looks at
    windows of it."""
    kinds = [_kinds(graph, name) for name in graph.readers(value)]
    if value in graph.results() or not kinds or set() in kinds:
        return False
    if any(each & {"reduce", "window"} for each in kinds):
        return True
    behind: list[Any] = [graph.by_name[name].outputs[0] for name in graph.readers(value)]
    return far > 0 and any(_is_reduced(graph, each, far - 1) for each in behind)


def _kinds(graph: Graph, name: str) -> set[str]:
    """Kinds of nodes of an op's kernel, where that is elementwise or reduces or looks at windows; none else."""
    kinds: set[str] = {node.kind for node in nodes_of(graph, name)}
    return kinds if kinds <= {"map", "reduce", "window", "view"} else set()


STATISTICS: tuple[Rule, ...] = (_of_channels, _of_groups, _of_instances)
