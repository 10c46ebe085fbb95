"""filled: convolutions in a form whose product fills the tiles of tensor cores.

Proofs, for one dimension; dimensions are independent.

A transposed convolution of stride 1 is y[o, q] = sum_{c, u} W[c, o, u] x[c, q + p - d u]. With t = k - 1 - u and the taps
turned around, V[o, c, t] = W[c, o, k - 1 - t], that is sum_{c, t} V[o, c, t] x[c, q + d t - (d (k - 1) - p)]: a convolution
with padding d (k - 1) - p. It is in order where that is at least 0.

In groups, channels of a result see those of one group alone. With weights of 0 for the others they see all.

A convolution over a line is one over a plane of height 1, with one tap down; and work on each element of such a plane's
line is the same work on the plane's.

With the taps of a dimension as channels, z[(c, u), q] = x[c, s q + d u - p], zero outside of x, a convolution is one of a
single tap there: sum_{c, u} W[o, (c, u)] z[(c, u), q]. More channels of zeros, with weights of 0, change nothing.

What it is for: tensor cores multiply tiles of at least 16 by 8 numbers, of which fp32 ones must be summed along memory.
Where an operand has three channels, or eight in each group, most of a tile is padding, or each number is looked up by
itself; what lies in a line has no layout in torch whose channels come last; and the library has slow kernels for transposed
convolutions of volumes. Zeros make up to eight times the work in groups, on units that are twenty times as fast.

All this is for kernels of ours. Of taps that are channels the channels lie last, and the result is said to lie in order all
the same, as all results of such kernels: the library's would not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, TRANSPOSED, each_of
from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, exchanged, of_module
from mtmc.rewrite.algebra.turned import ALONE
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Shape
from mtmc.rewrite.operators.arithmetic import ARITHMETIC
from mtmc.rewrite.operators.steps import argument

FEWEST, ENOUGH = 4, 16
"""Channels of a group, of operand and result: fewer are done by kernels without tensor cores, as many fill their tiles."""
MOST_GROUPS = 8
LEAST_LAST = 8
"""Channels from which on a convolution over a line is worth its channels last."""
FEW, LINE = 8, 8
"""Channels that are few, and how many numbers are read at once at least: channels are filled up to a multiple of that."""
MANY_TAPS = 64
"""Numbers to be summed above which taps become channels. KernelBench of level 1 on an H200, three channels: 50, with 363,
0.88 ms so and 1.49 as they are; 60, with 315, 1.34 and 1.72; 54, with 27, 0.90 and 0.71."""


@dataclass(frozen=True)
class Convolving:
    """A plain or transposed convolution with a weight of the module and settings that are numbers.

    taps, stride, padding, dilation: of each dimension of places. further: places that a transposed one adds at the end.
    """

    transposed: bool
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    further: tuple[int, ...]
    groups: int
    bias: Any

    @property
    def rank(self) -> int:
        """How many dimensions of places there are."""
        return len(self.taps)


def convolving(graph: Graph, op: Op) -> Convolving | None:
    """What an op convolves; None where it does not, or not with weights and settings that are the same at all shapes."""
    rank, transposed = CONVOLUTIONS.get(op.target) or TRANSPOSED.get(op.target), op.target in TRANSPOSED
    if rank is None or not all(isinstance(item, Ref) for item in op.args[:2]):
        return None
    x, weight = (graph.values[item.name] for item in op.args[:2])
    held = of_module(graph, op.args[1].name) and x.is_float and weight.dtype == x.dtype
    if not held or len(x.shape) != rank + 2 or any(len(set(size)) > 1 for size in weight.shape[2:]):
        return None
    names: tuple[str, ...] = ("stride", "padding", "dilation", "groups")
    if transposed:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
    found = {name: argument(op, at, name, 0 if "padding" in name else 1) for at, name in enumerate(names, 3)}
    each = {name: each_of(value) for name, value in found.items()}
    if not all(isinstance(number, int) for numbers in each.values() for number in numbers):
        return None
    each = {name: numbers * rank if len(numbers) == 1 else numbers for name, numbers in each.items()}
    taps = tuple(size[0] for size in weight.shape[2:])
    further = each.get("output_padding", (0,) * rank)
    settings = (each["stride"], each["padding"], each["dilation"], further)
    return Convolving(transposed, taps, *settings, int(found["groups"]), argument(op, 2, "bias"))


def _convolved(edit: Editor, like: Convolving, item: Ref, weight: Ref, shape: Shape) -> Ref:
    """A convolution of other operands with these settings. Its result lies in order, see above. shape: of that."""
    target = {rank: name for name, rank in (TRANSPOSED if like.transposed else CONVOLUTIONS).items()}[like.rank]
    more = (like.further, like.groups, like.dilation) if like.transposed else (like.dilation, like.groups)
    return edit.add(target, (item, weight, like.bias, like.stride, like.padding, *more), shape, "filled")


def _in_one_group(graph: Graph, op: Op) -> Finding | None:
    """A convolution of few, narrow groups, as one of all channels."""
    found = convolving(graph, op)
    if found is None or not 1 < found.groups <= MOST_GROUPS:
        return None
    every, inner, *taps = graph.values[op.args[1].name].shape
    outer = tuple(size // found.groups for size in every)
    if not FEWEST <= min(outer[0], inner[0]) < ENOUGH:
        return None
    edit = Editor(graph, op)
    apart = edit.shaped(op.args[1], ((found.groups,) * len(outer), outer, inner, *taps))
    last = edit.permuted(apart, (*range(1, len(taps) + 3), 0), "groups_last")
    spread = edit.called("aten.diag_embed.default", (last,), "amid_zeros")
    if spread is None:
        return None
    rank = len(taps)
    back = edit.permuted(spread, (rank + 2, 0, rank + 3, 1, *range(2, rank + 2)), "groups_first")
    dense = _in_order(edit, edit.shaped(back, (every, tuple(size * found.groups for size in inner), *taps)))
    if dense is None:
        return None
    made = _convolved(edit, replace(found, groups=1), op.args[0], dense, graph.values[op.outputs[0]].shape)
    return edit.relaid(f"{op.name} in {found.groups} groups is one of all channels, amid zeros", (op.name,), made)


def _not_turned(graph: Graph, op: Op) -> Finding | None:
    """A transposed convolution of stride 1, as a convolution with its taps turned around."""
    found = convolving(graph, op)
    if found is None or not found.transposed or found.groups > 1 or {*found.stride} != {1} or any(found.further):
        return None
    reach = tuple(step * (size - 1) for step, size in zip(found.dilation, found.taps, strict=True))
    padding = tuple(far - near for far, near in zip(reach, found.padding, strict=True))
    if min(padding) < 0:
        return None
    edit, rank = Editor(graph, op), found.rank
    flipped = edit.add(
        "aten.flip.default", (op.args[1], tuple(range(2, rank + 2))), edit.tensor(op.args[1]).shape, "flipped"
    )
    turned = edit.permuted(flipped, (1, 0, *range(2, rank + 2)), "outer_first")
    weight = _in_order(edit, turned)
    if weight is None:
        return None
    settings = replace(found, transposed=False, padding=padding)
    made = _convolved(edit, settings, op.args[0], weight, graph.values[op.outputs[0]].shape)
    return edit.relaid(f"{op.name} is a convolution with its taps turned around", (op.name,), made)


def _of_a_plane(graph: Graph, op: Op) -> Finding | None:
    """A convolution over a line, as one over a plane of height 1."""
    found = convolving(graph, op)
    if found is None or found.rank != 1 or found.groups > 1:
        return None
    x, weight, result = (graph.values[name] for name in (op.args[0].name, op.args[1].name, op.outputs[0]))
    if min(x.shape[1][0], result.shape[1][0]) < LEAST_LAST or not x.contiguous:
        return None
    edit = Editor(graph, op)
    plane = _plane_of(graph, op.args[0]) or edit.shaped(op.args[0], _with_height(x.shape))
    filters = edit.shaped(op.args[1], _with_height(weight.shape))
    spread: dict[str, Any] = {name: (none, *getattr(found, name)) for name, none in _NOTHING.items()}
    made = _convolved(edit, replace(found, **spread), plane, filters, _with_height(result.shape))
    line = edit.shaped(made, result.shape)
    return edit.relaid(f"{op.name} is a convolution over a plane of height 1", (op.name,), line)


def _before_the_line(graph: Graph, op: Op) -> Finding | None:
    """Work on the elements of a line that a convolution over a plane has made, as work on those of the plane: so kernels
    take it in, and what convolves that line next finds the plane."""
    result = graph.values.get(op.outputs[0])
    known = op.target in ALONE or op.target in ARITHMETIC
    if (
        not known
        or result is None
        or len(result.shape) != 3
        or not result.contiguous
        or op.kwargs.get("out") is not None
    ):
        return None
    planes = {ref: plane for ref in op.refs() if (plane := _plane_of(graph, Ref(ref))) is not None}
    tensors = [graph.values.get(ref) for ref in op.refs()]
    if not planes or not all(each is not None and each.contiguous and len(each.shape) <= 3 for each in tensors):
        return None
    if any(graph.values[ref].shape != result.shape for ref in planes):
        return None
    edit, given = Editor(graph, op), dict(planes)
    for ref in op.refs():
        shape = graph.values[ref].shape
        if ref not in given and len(shape) > 1:
            given[ref] = edit.shaped(Ref(ref), _with_height(shape))
    args, kwargs = exchanged(op.args, given), exchanged(dict(op.kwargs), given)
    made = edit.add(op.target, args, _with_height(result.shape), "of_a_plane", kwargs)
    return edit.relaid(f"{op.name} is done on a plane of height 1", (op.name,), edit.shaped(made, result.shape))


def _plane_of(graph: Graph, item: Ref) -> Ref | None:
    """The plane of height 1 that a value is the line of, if a convolution's or work on that."""
    op = graph.by_name.get(graph.producer.get(item.name, ""))
    if op is None or op.target != "aten.reshape.default" or not isinstance(op.args[0], Ref):
        return None
    line, plane = graph.values[item.name].shape, graph.values[op.args[0].name].shape
    return op.args[0] if len(line) == 3 and plane == _with_height(line) else None


def _with_height(line: Shape) -> Shape:
    """The shape of a plane of height 1."""
    return (*line[:-1], (1,) * len(line[-1]), line[-1])


_NOTHING = {"taps": 1, "stride": 1, "padding": 0, "dilation": 1, "further": 0}
"""The settings of a dimension in which nothing is convolved."""


def _of_taps(graph: Graph, op: Op) -> Finding | None:
    """A convolution of few channels, with taps of the last dimensions as channels."""
    found = convolving(graph, op)
    if found is None or found.transposed or found.groups > 1 or found.rank < 2:
        return None
    channels, *others = set(graph.values[op.args[0].name].shape[1])
    if others or channels >= FEW or channels * prod(found.taps) <= MANY_TAPS:
        return None
    first = found.rank  # the first dimension of places whose taps become channels
    while channels * prod(found.taps[first:]) < ENOUGH:
        first -= 1
    edit, inner = Editor(graph, op), channels * prod(found.taps[first:])
    more = -inner % LINE
    weight = _weight_of_taps(edit, op.args[1], first, more)
    item = _taps_of(edit, op.args[0], found, first, more)
    left: dict[str, Any] = {
        name: (*getattr(found, name)[:first], *(none,) * (found.rank - first)) for name, none in _NOTHING.items()
    }
    if weight is None or item is None:
        return None
    made = _convolved(edit, replace(found, **left), item, weight, graph.values[op.outputs[0]].shape)
    return edit.relaid(f"taps of {op.name} are channels, {inner} in place of {channels}", (op.name,), made)


def _weight_of_taps(edit: Editor, weight: Ref, first: int, more: int) -> Ref | None:
    """The weights, their taps from a dimension on behind the channel that they are of, and zeros for more channels."""
    outer, channels, *taps = edit.tensor(weight).shape
    rank, one = len(taps), (1,) * len(outer)
    behind = edit.permuted(weight, (0, 1, *range(first + 2, rank + 2), *range(2, first + 2)), "taps_behind")
    inner = channels[0] * prod(size[0] for size in taps[first:])
    shaped = edit.shaped(behind, (outer, _size(inner, one), *taps[:first], *(one,) * (rank - first)))
    padded = edit.called("aten.pad.default", (shaped, (0, 0) * rank + (0, more)), "padded_weight") if more else shaped
    return padded and _in_order(edit, padded)


def _taps_of(edit: Editor, item: Ref, found: Convolving, first: int, more: int) -> Ref | None:
    """The operand, what the taps from a dimension on see behind the channel, and more channels of zeros."""
    rank, seen = found.rank, item
    around = [number for at in reversed(range(first, rank)) for number in (found.padding[at],) * 2]
    if any(around):
        padded = edit.called("aten.pad.default", (item, tuple(around)), "padded")
        if padded is None:
            return None
        seen = padded
    for at in range(first, rank):
        step, reach = found.dilation[at], found.dilation[at] * (found.taps[at] - 1) + 1
        windows = edit.called("aten.unfold.default", (seen, at + 2, reach, found.stride[at]), "windows")
        if windows is not None and step > 1:
            last = len(edit.tensor(windows).shape) - 1
            windows = edit.called("aten.slice.Tensor", (windows, last, 0, reach, step), "seen")
        if windows is None:
            return None
        seen = windows
    # channels last, as tensor cores take them, by the one kernel that gathers them
    moved = edit.permuted(seen, (0, *range(2, rank + 2), 1, *range(rank + 2, 2 * rank + 2 - first)), "taps_last")
    batch, *places = edit.tensor(moved).shape[: rank + 1]
    inner = _size(prod(size[0] for size in edit.tensor(moved).shape[rank + 1 :]), batch)
    if not more:
        moved = edit.add(IN_ORDER, (moved,), edit.tensor(moved).shape, "gathered")
    channels = edit.shaped(moved, (batch, *places, inner))
    if more:
        filled = tuple(size + more for size in inner)
        channels = edit.add("aten.pad.default", (channels, (0, more)), (batch, *places, filled), "gathered")
    return edit.permuted(channels, (0, rank + 1, *range(1, rank + 1)), "channels")


def _in_order(edit: Editor, weight: Ref) -> Ref | None:
    """The weight in the order of its dimensions, as kernels take it."""
    return weight if edit.tensor(weight).contiguous else edit.called("aten.contiguous.default", (weight,), "weight")


def _size(number: int, like: tuple[int, ...]) -> tuple[int, ...]:
    """A number as a size at every variant."""
    return (number,) * len(like)


FILLED: tuple[Rule, ...] = (_in_one_group, _not_turned, _of_a_plane, _before_the_line, _of_taps)
