"""statistics: a norm of channels or groups as its statistics, and elementwise work that knows them.

Proof. It is the definition. With the mean and the variance of what is normed together, z = (x - mean) / sqrt(var + eps),
scaled and shifted by channels. For a batch norm in training that is a batch norm in evaluation with those, and the running
statistics become

    mean' = m mean + (1 - m) mean_before, var' = m var n / (n - 1) + (1 - m) var_before

What is added to each channel before, b, moves the mean by b and leaves the variance, so that z is that of x without b.

What it is for: a kernel that goes over channels or groups takes in nothing that reduces over something else. Apart from its
statistics the norm is elementwise, and a pool, a softmax or a mean behind it takes that in: what is between them need not
be written and read again. Nor need what is normed, where it is elementwise work itself: the statistics are of a copy of that
work, so that both kernels start from what it is made of. The bias of a library convolution is such work (see `biases`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mtmc.rewrite.algebra.biases import added_behind
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, exchanged, nodes_of
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, Varying, product, same
from mtmc.rewrite.operators.steps import argument

_TRAINED = "aten._native_batch_norm_legit_functional.default"
_NORMS = (_TRAINED, "aten.batch_norm.default")
_GROUPED = ((2, "weight", None), (3, "bias", None), (4, "eps", 1e-5))
"""Further arguments of a group norm: where they stand, what they are called and what they usually are."""
_SEEN = ("aten.reshape.default", "aten.view.default")
"""Ops by which numbers of channels are seen as wide as what they are added to."""
_FAR = 8
"""Elementwise ops between a norm and what reduces its result."""
_AGAIN = 8
"""Elementwise ops that are done once more for the statistics: a kernel has time for more while it reads."""


def _of_channels(graph: Graph, op: Op) -> Finding | None:
    """A batch norm in training."""
    x, weight, bias, mean, variance, training, momentum, eps = op.args[:8]
    if not training or (op.target != _TRAINED and mean is not None) or not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    shape = graph.values[x.name].shape
    if not graph.used.isdisjoint(op.outputs[1:3]) or len(shape) < 2 or op.kwargs:
        return None
    edit, channels, dims = Editor(graph, op), (shape[1],), (0, *range(2, len(shape)))
    x, added = _without_bias(graph, x)
    own = _made_again(edit, x)
    spread, centre = edit.pair(
        "aten.var_mean.correction", (own, dims), channels, ("spread", "centre"), {"correction": 0}
    )
    known = (x, weight, bias, centre, spread, False, 0.0, eps, False)
    pairs = {op.outputs[0]: edit.add("aten.batch_norm.default", known, graph.values[op.outputs[0]].shape, "known")}
    if op.target == _TRAINED:
        new = edit.add("aten.var.correction", (own, dims), channels, "unbiased", {"correction": 1})
        moved = centre if added is None else edit.add("aten.add.Tensor", (centre, added), channels, "moved")
        pairs[op.outputs[3]] = _followed(edit, moved, mean, momentum, channels)
        pairs[op.outputs[4]] = _followed(edit, new, variance, momentum, channels)
    return edit.replaced(_sentence(op), (op.name,), pairs)


def _of_groups(graph: Graph, op: Op) -> Finding | None:
    """A group norm."""
    if not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    x, groups = op.args[:2]
    weight, bias, eps = (argument(op, at, name, usual) for at, name, usual in _GROUPED)
    shape = graph.values[x.name].shape
    counts = groups.values if isinstance(groups, Varying) else (groups,) * len(shape[0])
    within = tuple(size // int(count) for size, count in zip(shape[1], counts, strict=True))
    return _normed(Editor(graph, op), x, (shape[0], tuple(map(int, counts)), within, *shape[2:]), (weight, bias, eps))


def _of_instances(graph: Graph, op: Op) -> Finding | None:
    """An instance norm by statistics of its input."""
    if not op.args[5] or not _is_reduced(graph, op.outputs[0], _FAR):
        return None
    x, weight, bias, mean, *_, eps = op.args[:8]
    x, _added = _without_bias(graph, x)
    return None if mean is not None else _normed(Editor(graph, op), x, graph.values[x.name].shape, (weight, bias, eps))


def _normed(edit: Editor, x: Ref, grouped: Shape, settings: tuple[Any, Any, float]) -> Finding | None:
    """A norm of what lies behind the first two dimensions of the grouped shape."""
    op, (weight, bias, eps) = edit.op, settings
    shape, one = edit.tensor(x).shape, (1,) * len(grouped[0])
    if not edit.tensor(x).contiguous or len(shape) < 3:
        return None
    kept = (*grouped[:2], *(one,) * (len(grouped) - 2))
    seen, dims = edit.shaped(x, grouped), tuple(range(2, len(grouped)))
    own, known = edit.shaped(_made_again(edit, x), grouped), {"correction": 0, "keepdim": True}
    spread, centre = edit.pair("aten.var_mean.correction", (own, dims), kept, ("spread", "centre"), known)
    scale = edit.add("aten.rsqrt.default", (edit.add("aten.add.Tensor", (spread, eps), kept, "raised"),), kept, "scale")
    apart = edit.add("aten.sub.Tensor", (seen, centre), grouped, "apart")
    made = edit.shaped(edit.add("aten.mul.Tensor", (apart, scale), grouped, "normal"), shape)
    along = (shape[1], *(one,) * (len(shape) - 2))
    for target, parameter in (("aten.mul.Tensor", weight), ("aten.add.Tensor", bias)):
        if isinstance(parameter, Ref):
            made = edit.add(target, (made, edit.shaped(parameter, along)), shape, "known")
    return edit.replaced(_sentence(op), (op.name,), {op.outputs[0]: made})


def _without_bias(graph: Graph, x: Ref) -> tuple[Ref, Ref | None]:
    """What a number for each channel is added to, and these numbers; the value itself and None where none is."""
    op, tensor = graph.by_name.get(graph.producer.get(x.name, "")), graph.values[x.name]
    if op is None or op.target != "aten.add.Tensor" or op.kwargs or not all(isinstance(item, Ref) for item in op.args):
        return x, None
    channels, one = (tensor.shape[1],), (1,) * len(graph.variants)
    along = (*channels, *(one,) * (len(tensor.shape) - 2))
    for plain, spread in (op.args, op.args[::-1]):
        seen = graph.by_name.get(graph.producer.get(spread.name, ""))
        wide = graph.values[plain.name].shape == tensor.shape and graph.values[spread.name].shape in (
            along,
            (one, *along),
        )
        if not wide or seen is None:
            continue
        added = seen.args[0] if seen.target in _SEEN else None
        known = graph.values.get(added.name) if isinstance(added, Ref) else None
        if (
            known is not None
            and known.shape == channels
            and {known.dtype, graph.values[plain.name].dtype} == {tensor.dtype}
        ):
            return plain, added
    return x, None


def _made_again(edit: Editor, x: Ref) -> Ref:
    """A value by ops of its own, as far back as these are elementwise and read one value of its size; the value itself where
    it is none of such ops, or is written in any case."""
    graph = edit.graph
    if x.name in graph.results() or set() in [_kinds(graph, name) for name in graph.readers(x.name)]:
        return x
    by: dict[str, Ref] = {}
    for maker in reversed(_chain(graph, x.name)[0]):
        tensor = graph.values[maker.outputs[0]]
        args, kwargs = exchanged(maker.args, by), exchanged(dict(maker.kwargs), by)
        again = edit.add(maker.target, args, tensor.shape, "again", kwargs, tensor.strides, tensor.dtype)
        by = {maker.outputs[0]: again}
    return by.get(x.name, x)


def _chain(graph: Graph, value: str) -> tuple[list[Op], str]:
    """The elementwise ops that make a value of one of its size, the last one first; and that one, which is none of such."""
    found, size = list[Op](), product(graph.values[value].shape)
    while len(found) < _AGAIN and (maker := graph.by_name.get(graph.producer.get(value, ""))) is not None:
        large = {name for name in maker.refs() if same(product(graph.values[name].shape), size)}
        if len(large) != 1 or {node.kind for node in nodes_of(graph, maker.name)} != {"map"}:
            break
        found.append(maker)
        [value] = large
    return found, value


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


def _of_a_norm(graph: Graph, op: Op) -> Finding | None:
    """A norm; where a library convolution with a bias is before it, and elementwise work at most between the two, that as an
    addition of its own besides."""
    rule = _RULES.get(op.target)
    found = None if rule is None else rule(graph, op)
    source = "" if found is None else graph.producer.get(_chain(graph, op.refs()[0])[1], "")
    maker = graph.by_name.get(source)
    bare = None if maker is None else added_behind(graph, maker)
    if rule is None or bare is None:
        return found
    found = rule(bare.graph, bare.graph.by_name[op.name])
    return None if found is None else replace(found, ops=(*bare.ops, *found.ops))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_NORMS, _of_channels),
    "aten.group_norm.default": _of_groups,
    "aten.instance_norm.default": _of_instances,
}
STATISTICS: tuple[Rule, ...] = (_of_a_norm,)
