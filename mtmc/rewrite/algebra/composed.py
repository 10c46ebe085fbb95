"""composed: a layer of layers, of enlarged maps or of both side by side, as layers of what those are made of.

A layer here is a linear layer or a convolution of one tap: at each place it mixes the channels there.

Proof. W (V x + c) + b = (W V) x + (W c + b), a layer again. An enlarged map has at each place a mean of those of few places
(bilinear, bicubic) or one of them (nearest), whatever the channel, and the weights of a mean sum to 1: so a layer, with its
bias, may as well come before. Of channels side by side it is the sum of a layer of each part, with that part's columns of W.
Views and turns that leave the channels together move places alone, and a layer commutes with them.

What it is for: heads and decoders that bring maps of several sizes to one width, enlarge them, put them side by side and mix
them (SegFormer, feature pyramids, U-Nets). As written, the widest product of all is done at the most places. What is left is
a layer of each map at its own places, and a sum. The weights are multiplied with each other once (`pack`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, mixes_each_place
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of, producer
from mtmc.rewrite.algebra.turns import order_of
from mtmc.rewrite.graph import (
    Graph,
    Op,
    Ref,
    Shape,
    Size,
    Tensor,
    dense_strides,
    last_channels,
    lies_channels_last,
    product,
    same,
)
from mtmc.rewrite.operators.steps import argument

_LINEAR, _JOIN, _SUM = "aten.linear.default", "aten.cat.default", "aten.add.Tensor"
_ENLARGING = tuple(
    f"aten.upsample_{form}.vec"
    for form in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
)
_SIZED = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
"""Views that are told all sizes of their result."""
_VIEWS = (*_SIZED, "aten.flatten.using_ints", "aten.unflatten.int", "aten.squeeze.dim", "aten.unsqueeze.default")
MOST = 0.5
"""Of the multiplications as written, what may be left: a sum of parts and an enlargement of more channels are passes over
memory that were not there before."""


@dataclass(frozen=True)
class _Layer:
    """A layer whose weights are the module's. axis: of the channels in its operand and its result."""

    op: Op
    weight: Ref
    bias: Ref | None
    axis: int


@dataclass(frozen=True)
class _Part:
    """Some neighbouring channels of a layer's operand, and where a layer of them can be done instead.

    source: what it is done on, with channels along `axis`. way: what moves or enlarges the result afterwards, in order, each
    with the axis of the channels in its result. width: how many of the layer's channels these are. inner: the layer that it
    takes the place of too. gained: whether it is done at fewer places, or takes another one's place.
    """

    source: Ref
    axis: int
    way: tuple[tuple[Op, int], ...]
    width: Size
    inner: _Layer | None = None
    gained: bool = False


def _composed(graph: Graph, op: Op) -> Finding | None:
    layer = _layer(graph, op)
    if layer is None:
        return None
    parts = _parts(graph, op.args[0], layer.axis, graph.values[layer.weight.name].shape[0][0])
    if not any(part.gained for part in parts) or not _pays(graph, layer, parts):
        return None
    edit = Editor(graph, op)
    made = _sum_of(edit, layer, parts)
    if made is None or edit.tensor(made).shape != graph.values[op.outputs[0]].shape:
        return None
    inner = [part.inner.op.name for part in parts if part.inner is not None]
    passed = [step.name for part in parts for step, _ in part.way if step.target in _ENLARGING]
    of = " and ".join(dict.fromkeys((*inner, *passed)))
    return edit.relaid(f"{op.name} of {of} is done on what that is of", (op.name, *inner, *passed), made)


def _layer(graph: Graph, op: Op | None) -> _Layer | None:
    """The layer that an op is; None for any other, and where its weights are made or changed."""
    if op is None or (op.target != _LINEAR and not mixes_each_place(graph, op)):
        return None
    weight, bias = op.args[1], argument(op, 2, "bias")
    held = [weight] if bias is None else [weight, bias]
    changed = {mutation.target for mutation in graph.mutations}
    if any(not isinstance(each, Ref) or each.name not in graph.parameters or each.name in changed for each in held):
        return None
    known = [graph.values[each.name] for each in (op.args[0], *held)]
    if {each.dtype for each in known} != {graph.values[op.outputs[0]].dtype} or len(known[1].shape) < 2:
        return None
    return _Layer(op, weight, bias, 1 if op.target in CONVOLUTIONS else len(known[0].shape) - 1)


def _parts(graph: Graph, item: Any, axis: int, features: int) -> list[_Part]:
    """The channels of a value in order, each part as far back as a layer of so many features can be done of it."""
    here = [_Part(item, axis, (), graph.values[item.name].shape[axis])]
    op = producer(graph, item)
    if op is None or not op.args:
        return here
    inner = _layer(graph, op)
    if inner is not None:
        fits = inner.axis == axis and _is_less(graph, inner, features)
        return [_Part(op.args[0], axis, (), here[0].width, inner, True)] if fits else here
    if op.target == _JOIN:
        joined = op.args[0]
        if argument(op, 1, "dim", 0) % len(graph.values[item.name].shape) != axis or not _alike(graph, item, joined):
            return here
        found = [part for each in joined for part in _parts(graph, each, axis, features)]
        return found if any(part.gained for part in found) else here
    before = _axis_before(graph, op, axis)
    if before is None:
        return here
    enlarged = op.target in _ENLARGING and _is_larger(graph, op)
    found = [
        replace(part, way=(*part.way, (op, axis)), gained=part.gained or enlarged)
        for part in _parts(graph, op.args[0], before, features)
    ]
    return found if any(part.gained for part in found) else here


def _is_less(graph: Graph, inner: _Layer, features: int) -> bool:
    """Whether one layer multiplies less at a place than two, which go by fewer channels between them at times."""
    between, channels = (size[0] for size in graph.values[inner.weight.name].shape[:2])
    return channels * features < between * (channels + features)


def _alike(graph: Graph, item: Ref, parts: Any) -> bool:
    """Whether all that is joined are tensors of the join's type."""
    known = [graph.values.get(each.name) if isinstance(each, Ref) else None for each in parts]
    return all(each is not None and each.dtype == graph.values[item.name].dtype for each in known)


def _axis_before(graph: Graph, op: Op, axis: int) -> int | None:
    """The axis of the channels in an op's operand, by that in its result; None where it does more than move places."""
    order = order_of(graph, op)
    if order is not None:
        return order[axis]
    if not isinstance(op.args[0], Ref) or op.args[0].name not in graph.values:
        return None
    old, new = graph.values[op.args[0].name].shape, graph.values[op.outputs[0]].shape
    if op.target in _ENLARGING:
        return axis if axis == 1 and len(old) > 2 else None
    if op.target not in _VIEWS:
        return None
    outside = (product(new[:axis]), product(new[axis + 1 :]))
    for dim, size in enumerate(old):
        if same(size, new[axis]) and all(map(same, outside, (product(old[:dim]), product(old[dim + 1 :])))):
            return dim
    return None


def _is_larger(graph: Graph, op: Op) -> bool:
    return graph.values[op.outputs[0]].numel() > graph.values[op.args[0].name].numel()


def _pays(graph: Graph, layer: _Layer, parts: list[_Part]) -> bool:
    """Whether few enough multiplications are left, at the full shapes."""
    features = graph.values[layer.weight.name].shape[0][0]
    before = graph.values[layer.op.args[0].name].numel() * features
    for part in parts:
        if part.inner is not None:
            inner = graph.values[part.inner.weight.name].shape[0][0]
            before += graph.values[part.source.name].numel() * inner
    return features * sum(graph.values[part.source.name].numel() for part in parts) <= MOST * before


def _sum_of(edit: Editor, layer: _Layer, parts: list[_Part]) -> Ref | None:
    """The layer as a sum over the parts of its operand; None where torch refuses one of them."""
    first, columns, bias = (0,) * len(edit.graph.variants), list[Ref](), layer.bias
    for part in parts:
        columns.append(_columns(edit, layer.weight, first, part.width))
        first = tuple(a + b for a, b in zip(first, part.width, strict=True))
        if part.inner is not None and part.inner.bias is not None:
            bias = _product(edit, part.inner.bias, columns[-1], bias)
    # the map of most places comes last, and has the bias: the kernel of its product can read the others
    ordered = sorted(zip(parts, columns, strict=True), key=lambda pair: _places(edit.graph, pair[0]))
    made = list[Ref]()
    for number, (part, own) in enumerate(ordered, 1):
        mixed = _mixed(edit, part, own, bias if number == len(ordered) else None)
        moved = None if mixed is None else _moved(edit, part, mixed)
        if moved is None:
            return None
        made.append(moved)
    total = made[0]
    for each in made[1:]:
        total = edit.add(_SUM, (each, total), edit.tensor(each).shape, "sum", strides=edit.tensor(each).strides)
    return total


def _places(graph: Graph, part: _Part) -> int:
    """At how many places a part is mixed, at the full shapes."""
    source = graph.values[part.source.name]
    return source.numel() // max(1, source.shape[part.axis][0])


def _columns(edit: Editor, weight: Ref, first: Size, width: Size) -> Ref:
    """A layer's weights as a matrix, those of some neighbouring channels."""
    features, channels = edit.tensor(weight).shape[:2]
    matrix = edit.shaped(weight, (features, channels))
    if same(width, channels):
        return matrix
    end = tuple(a + b for a, b in zip(first, width, strict=True))
    cut = (matrix, 1, number_of(first), number_of(end))
    return edit.add("aten.slice.Tensor", cut, (features, width), "columns", strides=edit.tensor(matrix).lying)


def _product(edit: Editor, inner: Ref, weight: Ref, bias: Ref | None) -> Ref:
    """A layer of the bias of another one: of as many numbers as it has features."""
    return edit.add(_LINEAR, (inner, weight, *([] if bias is None else [bias])), edit.tensor(weight).shape[:1], "bias")


def _mixed(edit: Editor, part: _Part, weight: Ref, bias: Ref | None) -> Ref | None:
    """The layer of a part's source; None where there is no layer of channels that lie there. weight: a matrix."""
    rank, settings = len(edit.graph.values[part.source.name].shape), tuple[Any, ...]()
    by_rank = {places + 2: name for name, places in CONVOLUTIONS.items()}
    target = _LINEAR if part.axis == rank - 1 else by_rank.get(rank, "")
    if part.inner is not None:
        target, settings = part.inner.op.target, part.inner.op.args[3:]
        shape = edit.tensor(part.inner.weight).shape[:2]
        whole = edit.shaped(part.inner.weight, shape)
        made = (edit.tensor(weight).shape[0], shape[1])
        weight = edit.add("aten.matmul.default", (weight, whole), made, "weights")
    elif target != _LINEAR and part.axis != 1:
        return None
    if target not in CONVOLUTIONS:
        return edit.called(target, (part.source, weight, bias), "layer") if target else None
    (batch, _, *places), one = edit.graph.values[part.source.name].shape, (1,) * len(edit.graph.variants)
    shape = (batch, edit.tensor(weight).shape[0], *places)
    weight = edit.shaped(weight, (*edit.tensor(weight).shape, *(one,) * len(places)))
    strides = _lying(edit.graph.values[part.source.name], shape)
    return edit.add(target, (part.source, weight, bias, *settings), shape, "layer", strides=strides)


def _lying(source: Tensor, shape: Shape) -> Shape:
    """The strides of a convolution's result of that shape: channels last where the channels of what it is of lie last, which
    torch does not say of tensors without data."""
    if source.contiguous or not lies_channels_last(source):
        return ()
    order = last_channels(len(shape))
    strides = dense_strides(tuple(shape[dim] for dim in order))
    return tuple(strides[order.index(dim)] for dim in range(len(shape)))


def _moved(edit: Editor, part: _Part, item: Ref) -> Ref | None:
    """What has been mixed, at the places where the layer's result has it; None where torch refuses a step."""
    features = edit.tensor(item).shape[part.axis]
    for step, axis in part.way:
        args = step.args[1:]
        if step.target in _SIZED:
            args = (tuple(number_of(features) if dim == axis else size for dim, size in enumerate(args[0])), *args[1:])
        made = edit.called(step.target, (item, *args), step.name, step.kwargs)
        if made is None:
            return None
        item = made
    return item


COMPOSED: tuple[Rule, ...] = (_composed,)
