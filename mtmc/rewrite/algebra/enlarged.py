"""enlarged: a convolution of a map that was enlarged by its nearest places, as a transposed convolution of the map itself.

Proof, for one dimension. Enlarged s times, the map has at place j what x has at j // s, and zero outside of both. A
convolution with k taps W and padding p makes of it at o the sum over taps u of W[u] x[(o - p + u) // s]. The taps that read
x[i] are those with s i <= o - p + u < s i + s. So the result is the sum over i of x[i] V[o + q - s i] with q = k - 1 - p and
V[t] the sum over r < s of W[k - 1 - t + r], zero where there is no such tap: a transposed convolution with stride s, padding
q and the k + s - 1 taps V. It makes (n - 1) s - 2 q + k + s - 1 = n s + 2 p - k + 1 places, as many. Dimensions are
independent, and enlarging twice is enlarging by the product of both factors.

V is W turned around, amid zeros, with each tap summed with its s - 1 neighbours: made of weights alone, it is kept.

What it is for: decoders of images and volumes (autoencoders, U-Nets, GANs, feature pyramids) enlarge a map and convolve it.
Each result then has (k + s - 1) / s taps in a dimension in place of k, 4 of 9 for 3 x 3 and twice the size, and the enlarged
map, s^2 times the size, is neither written nor read.
"""

from __future__ import annotations

import math

from mtmc.rewrite.algebra.convolutions import (
    CONVOLUTIONS,
    DILATION_AT,
    GROUPS_AT,
    PADDING_AT,
    STRIDE_AT,
    TRANSPOSED,
    each_of,
)
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

_REPEAT = "aten.repeat_interleave.self_int"
_ENLARGING = (
    _REPEAT,
    *(f"aten.{form}{rank}d.vec" for form in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
)
MOST_FACTOR = 8
"""Up to which torch's `upsample_nearest`, which divides in fp32, surely takes the place that is meant."""


def _of_smaller(graph: Graph, op: Op) -> Finding | None:
    rank = CONVOLUTIONS.get(op.target)
    if rank is None or not all(isinstance(item, Ref) for item in op.args[:2]):
        return None
    factors, source, passed = _enlarged(graph, op.args[0], rank)
    taps, reach = _taps(graph, op, rank)
    if not passed or not taps or not _pays(taps, factors):
        return None
    edit, weight = Editor(graph, op), op.args[1]
    turned = _weights(edit, weight, taps, factors)
    if turned is None:
        return None
    padding = tuple(size - 1 - at for size, at in zip(taps, reach, strict=True))
    one, none = (1,) * rank, (0,) * rank
    settings = (factors, padding, none, 1, one)
    made = edit.called(tuple(TRANSPOSED)[rank - 1], (source, turned, None, *settings), "turned")
    bias = argument(op, 2, "bias")
    if made is not None and isinstance(bias, Ref):
        # the library adds it in a pass of its own, a kernel behind it in none
        along = edit.shaped(bias, (*edit.tensor(bias).shape, *((1,) * len(graph.variants),) * rank))
        made = edit.called("aten.add.Tensor", (made, along), "biased")
    if made is None or edit.tensor(made).shape != graph.values[op.outputs[0]].shape:
        return None
    sentence = f"{op.name} of an enlarged map is a transposed convolution of the map"
    return edit.relaid(sentence, (*passed, op.name), made)


def _enlarged(graph: Graph, item: Ref, rank: int) -> tuple[tuple[int, ...], Ref, tuple[str, ...]]:
    """How many times a value was enlarged in each dimension of places, what was, and the ops that did it."""
    factors, passed = (1,) * rank, tuple[str, ...]()
    while (op := producer(graph, item, *_ENLARGING)) is not None and isinstance(op.args[0], Ref):
        more = _factors(graph, op, rank)
        if more is None:
            break
        factors = tuple(a * b for a, b in zip(factors, more, strict=True))
        item, passed = op.args[0], (op.name, *passed)
    return factors, item, passed


def _factors(graph: Graph, op: Op, rank: int) -> tuple[int, ...] | None:
    """How many times an op enlarges each dimension of places; None where it does anything else."""
    before, after = (graph.values[name].shape for name in (op.args[0].name, op.outputs[0]))
    if len(before) != rank + 2 or len(after) != rank + 2 or before[:2] != after[:2]:
        return None
    if op.target == _REPEAT and not isinstance(argument(op, 2, "dim", None), int):
        return None  # it goes over all elements then
    found = []
    for small, large in zip(before[2:], after[2:], strict=True):
        ratios = {b // a for a, b in zip(small, large, strict=True) if a}
        if len(ratios) != 1 or any(a * max(ratios) != b for a, b in zip(small, large, strict=True)):
            return None
        found.append(ratios.pop())
    return tuple(found) if all(1 <= each <= MOST_FACTOR for each in found) else None


def _taps(graph: Graph, op: Op, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Taps and padding of a convolution in each dimension, with weights of the module; none for any that is not plain."""
    weight = graph.values[op.args[1].name]
    settings = ((STRIDE_AT, "stride"), (DILATION_AT, "dilation"), (GROUPS_AT, "groups"))
    plain = all(set(each_of(argument(op, at, name, 1))) == {1} for at, name in settings)
    held = op.args[1].name in graph.parameters and weight.dtype == graph.values[op.outputs[0]].dtype
    if not plain or not held or any(len(set(sizes)) != 1 for sizes in weight.shape[2:]):
        return (), ()
    taps = tuple(sizes[0] for sizes in weight.shape[2:])
    reach = each_of(argument(op, PADDING_AT, "padding", 0))
    reach = reach * rank if len(reach) == 1 else reach
    fits = all(isinstance(at, int) and at < size for size, at in zip(taps, reach, strict=True))
    return (taps, reach) if fits else ((), ())


def _pays(taps: tuple[int, ...], factors: tuple[int, ...]) -> bool:
    """Whether results have fewer taps than as written."""
    places = math.prod(factors)
    return math.prod(size + factor - 1 for size, factor in zip(taps, factors, strict=True)) < places * math.prod(taps)


def _weights(edit: Editor, weight: Ref, taps: tuple[int, ...], factors: tuple[int, ...]) -> Ref | None:
    """The weights of the transposed convolution, channels of the operand first; None where torch cannot make them."""
    rank, shape = len(taps), edit.tensor(weight).shape
    around = tuple(factor - 1 for factor in reversed(factors) for _ in range(2))
    flipped = edit.add("aten.flip.default", (weight, tuple(range(2, rank + 2))), shape, "flipped")
    windows = edit.called("aten.pad.default", (flipped, around), "amid")
    for at, factor in enumerate(factors):
        if windows is not None:
            windows = edit.called("aten.unfold.default", (windows, at + 2, factor, 1), "windows")
    if windows is None:
        return None
    # one sum over all of a window, which is rounded once
    summed = edit.called("aten.sum.dim_IntList", (windows, tuple(range(-rank, 0))), "summed")
    if summed is None:
        return None
    turned = edit.permuted(summed, (1, 0, *range(2, rank + 2)), "inner_first")
    return edit.called("aten.contiguous.default", (turned,), "weights")


ENLARGED: tuple[Rule, ...] = (_of_smaller,)
