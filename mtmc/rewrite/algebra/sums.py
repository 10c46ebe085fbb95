"""sums: the sum or mean over the results of a product, by way of a summed operand.

Proofs. With y[m, n] = sum_k x[m, k] w[n, k] + b[n], exchanging the two finite sums gives

    sum_n y[m, n] = sum_k x[m, k] (sum_n w[n, k]) + sum_n b[n]

which takes M K multiply-adds instead of M N K, and the same for means with both sums divided by N. Between product and sum
there may stand what is linear or constant along n: sum_n c y = c sum_n y, mean_n (y + c) = mean_n y + c, and
sum_n (y + v[n]) = sum_n y + sum_n v[n].

A transposed convolution without padding puts each product x[b, i, p] w[i, o, t] at exactly one place of its result, p stride
+ t dilation, and none outside of it. So the sum over all places is

    sum_q y[b, o, q] = sum_i (sum_p x[b, i, p]) (sum_t w[i, o, t]) + Q b[o]

with Q the number of places, and the mean is that by Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of, producer
from mtmc.rewrite.algebra.identities import reduced_dims
from mtmc.rewrite.graph import Graph, Op, Ref, is_one
from mtmc.rewrite.operators.steps import argument

_SUMS = {"aten.sum.dim_IntList": "sum", "aten.mean.dim": "mean"}
_PRODUCTS = ("aten.linear.default", "aten.matmul.default", "aten.mm.default", "aten.addmm.default")
_TRANSPOSED = ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
_SCALES = ("aten.mul.Tensor", "aten.div.Tensor")
_SHIFTS = ("aten.add.Tensor", "aten.sub.Tensor")


@dataclass(frozen=True)
class _Sum:
    """A sum or mean of a product. kind: "sum" or "mean". steps: what stands between, the last first."""

    op: Op
    kind: str
    dims: tuple[int, ...]
    product: Op
    steps: tuple[Op, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        return (self.product.name, *(step.name for step in reversed(self.steps)), self.op.name)


def _sum_of(graph: Graph, op: Op, *targets: str) -> _Sum | None:
    """The sum that ends with an op, over one of these products; None where it is none."""
    if op.target not in _SUMS or not isinstance(op.args[0], Ref) or op.kwargs or len(op.args) > 3:
        return None
    dims, kind = reduced_dims(graph, op), _SUMS[op.target]
    item, steps = op.args[0], list[Op]()
    while (step := producer(graph, item, *_SCALES, *_SHIFTS)) is not None:
        if not _passes(graph, step, dims, kind):
            return None
        steps.append(step)
        item = step.args[0]
    product = producer(graph, item, *targets)
    return None if product is None or not dims else _Sum(op, kind, dims, product, tuple(steps))


def _passes(graph: Graph, step: Op, dims: tuple[int, ...], kind: str) -> bool:
    """Whether a sum over dimensions of an elementwise step is that step on the sum."""
    if len(step.args) != 2 or step.kwargs or not isinstance(step.args[0], Ref):
        return False
    whole, other = graph.values[step.outputs[0]].shape, step.args[1]
    if graph.values[step.args[0].name].shape != whole:
        return False
    if not isinstance(other, Ref):
        return step.target in _SCALES or kind == "mean"
    shape = graph.values[other.name].shape
    along = [shape[dim - len(whole) + len(shape)] for dim in dims if dim - len(whole) + len(shape) >= 0]
    if all(is_one(size) for size in along):
        return step.target in _SCALES or kind == "mean"
    return step.target in _SHIFTS and len(along) == len(dims) and [whole[dim] for dim in dims] == along


def _features(graph: Graph, op: Op) -> Finding | None:
    """Over the last dimension of a linear layer or matrix product."""
    found = _sum_of(graph, op, *_PRODUCTS)
    if found is None:
        return None
    product = found.product
    parts = _operands(graph, product)
    if parts is None or found.dims != (len(graph.values[product.outputs[0]].shape) - 1,):
        return None
    left, right, across, bias = parts
    edit = Editor(graph, op)
    kept, at = graph.values[right.name].shape[1 - across], graph.values[right.name].shape
    vector = edit.add(op.target, (right, (across,)), (kept,), "operand")
    rows = graph.values[product.outputs[0]].shape[:-1]
    value = edit.add("aten.matmul.default", (left, vector), rows, "product")
    if bias is not None:
        shape = graph.values[bias.name].shape
        if shape != (at[across],):
            return None
        value = edit.add("aten.add.Tensor", (value, edit.add(op.target, (bias, (0,)), (), "bias")), rows, "biased")
    last = (*rows, tuple(1 for _ in graph.variants))
    value = edit.shaped(value, last)
    value = _stepped(edit, found, value)
    value = edit.shaped(value, graph.values[op.outputs[0]].shape)
    sentence = (
        f"the {found.kind} over the features of {product.name} equals its product with the {_summed(found)} operand"
    )
    return edit.finish(sentence, found.ops, value)


def _summed(found: _Sum) -> str:
    return "summed" if found.kind == "sum" else "averaged"


def _operands(graph: Graph, op: Op) -> tuple[Ref, Ref, int, Ref | None] | None:
    """Left and right operand, the right one's dimension of features, and the bias."""
    bias: Any = None
    if op.target == "aten.linear.default":
        left, right, bias, across = op.args[0], op.args[1], argument(op, 2, "bias"), 0
    elif op.target == "aten.addmm.default":
        (bias, left, right), across = op.args[:3], 1
    else:
        left, right, across = op.args[0], op.args[1], 1
    if op.kwargs or len(graph.values[right.name].shape) != 2 or len(graph.values[left.name].shape) < 2:
        return None
    if graph.values[left.name].dtype != graph.values[op.outputs[0]].dtype:
        return None
    return left, right, across, bias


def _stepped(edit: Editor, found: _Sum, value: Ref) -> Ref:
    """What stood between product and sum, done to the sum (which keeps its dimensions with size 1)."""
    shape = edit.tensor(value).shape
    for step in reversed(found.steps):
        other = step.args[1]
        if isinstance(other, Ref):
            own = edit.graph.values[other.name].shape
            lead = len(shape) - len(own)
            mine = tuple(dim - lead for dim in found.dims if dim >= lead)
            if mine and not all(is_one(own[dim]) for dim in mine):
                ones = tuple(1 for _ in edit.graph.variants)
                kept = tuple(ones if axis in mine else size for axis, size in enumerate(own))
                other = edit.add(found.op.target, (other, mine, True), kept, "shared")
        value = edit.add(step.target, (value, other), shape, step.name)
    return value


def _places(graph: Graph, op: Op) -> Finding | None:
    """Over all places of a transposed convolution without padding."""
    found = _sum_of(graph, op, *_TRANSPOSED)
    if found is None:
        return None
    product = found.product
    x, weight, bias = product.args[0], product.args[1], argument(product, 2, "bias")
    shape = graph.values[product.outputs[0]].shape
    places = tuple(range(2, len(shape)))
    if found.dims != places or len(graph.values[x.name].shape) != len(shape) or not _plain(product):
        return None
    edit = Editor(graph, op)
    images, channels = graph.values[x.name].shape[:2], shape[1]
    total = edit.add("aten.sum.dim_IntList", (x, places), images, "images")
    taps = edit.add("aten.sum.dim_IntList", (weight, places), (images[1], channels), "taps")
    value = edit.add("aten.matmul.default", (total, taps), (images[0], channels), "product")
    counts = [number_of(shape[axis]) for axis in places]
    if found.kind == "mean":
        for count in counts:
            value = edit.add("aten.div.Tensor", (value, count), (images[0], channels), "shared")
        if isinstance(bias, Ref):
            value = edit.add("aten.add.Tensor", (value, bias), (images[0], channels), "biased")
    elif isinstance(bias, Ref):
        own: Ref = bias
        for count in counts:
            own = edit.add("aten.mul.Tensor", (own, count), (channels,), "bias")
        value = edit.add("aten.add.Tensor", (value, own), (images[0], channels), "biased")
    ones = tuple(tuple(1 for _ in graph.variants) for _ in places)
    value = _stepped(edit, found, edit.shaped(value, (images[0], channels, *ones)))
    value = edit.shaped(value, graph.values[op.outputs[0]].shape)
    what = f"the {found.kind} over all places of {product.name}"
    sentence = f"{what} equals the product of the summed images and the summed taps"
    return edit.finish(sentence, found.ops, value)


def _plain(op: Op) -> bool:
    """Whether a transposed convolution has no padding and one group."""
    padding, more, groups = (argument(op, at, "", default) for at, default in ((4, 0), (5, 0), (6, 1)))
    flat = [each for item in (padding, more) for each in (item if isinstance(item, tuple) else (item,))]
    return all(each == 0 for each in flat) and groups == 1


SUMS: tuple[Rule, ...] = (_features, _places)
