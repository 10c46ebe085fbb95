"""taps: what a window of a value is, computed at the place where it is needed: pooling and depthwise convolution.

A kernel that goes over rows or elements asks for one element of a window's result. Its taps are gone through there, in a
loop, and each is an element of the operand at another place. So a depthwise convolution ends no fusion: the norm of its
channels behind it, in another order of dimensions, takes the sums as they come.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from mtmc.rewrite.body import Node, NotCovered, Operand, Window
from mtmc.rewrite.graph import Shape, Size
from mtmc.rewrite.index_maps import At, Condition, Permuted, broadcast_at
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.places import Digit, Place, Variable, number_place, one
from mtmc.rewrite.templates.positions import factor
from mtmc.rewrite.templates.writer import Writer

MAX_UNROLLED = 32
"""Taps of a window that are written out by the compiler; more are gone through by loops, but for the last dimension."""
NEUTRAL = {"max": 'float("-inf")', "sum": "0.0", "mean": "0.0", "weighted sum": "0.0"}
"""What a window starts from, by its operation."""
_AXES = ("d", "h", "w")


class Values(Protocol):
    """What is asked of the kernel's values at other places, see `elements.Elements`."""

    writer: Writer
    variables: dict[object, str]
    in_window: bool

    def value(self, operand: Operand, at: At, conditions: tuple[Condition, ...] = ()) -> str: ...
    def shape(self, operand: Operand) -> Shape: ...
    def text(self, place: Place) -> str: ...
    def number(self, number: Size) -> str: ...
    def condition(self, condition: Condition) -> str: ...
    def inside(self, at: At) -> str: ...
    def hangs(self, places: At) -> frozenset[str]: ...
    def fresh(self, base: str) -> str: ...


def is_tapped(node: Node) -> bool:
    """Whether a node is a window whose taps may be gone through at any place."""
    window = node.window
    if node.kind != "window" or window is None or node.operation not in NEUTRAL or window.adaptive or window.ceil:
        return False
    return node.operation != "mean" or window.counted == "all"


def windowed(elements: Values, node: Node, at: At, conditions: tuple[Condition, ...]) -> str:
    """Write the loop over the taps of a window at a place of its result. Returns: the variable with what they come to.

    Raises: NotCovered for windows whose places are divided otherwise than by steps, and for windows of windows, whose work
    would be that of both multiplied.
    """
    writer, window = elements.writer, node.window
    if window is None or not is_tapped(node) or not writer.windows:
        raise NotCovered(f"{node.name} is needed at another place than the one at hand")
    if elements.in_window:
        raise NotCovered("windows of windows")
    name = elements.fresh(node.name)
    lead, places, behind = _apart(window, at)
    for place in at:  # what is the same for all taps stands before the loop
        elements.text(place)
    tile = elements.fresh("tile")
    writer.line(f"{tile} = {elements.inside(at)}")
    writer.line(f"{name} = tl.full({tile}.shape, {NEUTRAL[node.operation]}, tl.float32)")
    if len(node.operands) > 1 and not _in_order(elements, node.operands[1]):
        at = (at[0], _spread(elements, at, tile, node.shape[1]), *places)
    known, level = dict(elements.variables), writer.level
    elements.variables[("sum of", node.name, at)] = name
    axes = _opened(elements, window)
    _add(elements, node, name, (*lead, *_moved(window, places, axes), *behind), axes, conditions)
    elements.variables.clear()
    elements.variables.update(known)
    elements.in_window, writer.level = False, level
    if node.operation == "mean":
        writer.line(f"{name} = {name} / {factor([elements.number(size) for size in window.size])}")
    return name


_Item = TypeVar("_Item")


def _apart(window: Window, each: tuple[_Item, ...]) -> tuple[tuple[_Item, ...], tuple[_Item, ...], tuple[_Item, ...]]:
    """Something of each dimension, by those before the spatial ones, these, and those behind: none, or the channels."""
    end = len(each) - window.last
    start = end - len(window.size)
    return each[:start], each[start:end], each[end:]


def _in_order(elements: Values, weight: Operand) -> bool:
    """Whether the taps of a channel lie one behind the other: then neighbouring channels are not read at once."""
    return not isinstance(weight, str) or elements.writer.tensor(weight).contiguous


def _spread(elements: Values, at: At, tile: str, channels: Size) -> Place:
    """The channel of each element of the tile, for its weights. Loaded once for all rows of a tile, they would go from
    thread to thread through shared memory at every tap; so each thread loads its own, from the nearest cache."""
    name = elements.fresh("channels")
    elements.writer.line(f"{name} = {elements.text(at[1])} + tl.zeros({tile}.shape, tl.int32)")
    elements.writer.hangs[name] = elements.hangs(at)
    elements.variables[("channels of", name)] = name
    return one(Variable(name, channels)).below(channels)


def _opened(elements: Values, window: Window) -> tuple[Place, ...]:
    """Open the loops. Returns: the tap at hand in each dimension."""
    writer, found, elements.in_window = elements.writer, list[Place](), True
    for number, size in enumerate(window.size):
        last = number == len(window.size) - 1
        unrolled = _count(window) <= MAX_UNROLLED or (last and size[0] <= MAX_UNROLLED)
        loop = "tl.static_range" if unrolled and not is_open(writer.graph, size) else "range"
        letter = _AXES[number - len(window.size)]
        writer.line(f"for tap_{letter} in {loop}({elements.number(size)}):")
        writer.level += 1
        ones = (1,) * len(size)
        found.append(one(Digit(f"tap_{letter}", ones, size, True)) if max(size) > 1 else number_place((0,) * len(size)))
    return tuple(found)


def _moved(window: Window, places: At, taps: tuple[Place, ...]) -> At:
    """Where the taps at hand are in the operand."""
    steps = zip(places, taps, window.stride, window.padding, window.dilation, strict=True)
    return tuple(
        place.times(stride).plus(tap.times(dilation)).plus_number(_less(padding))
        for place, tap, stride, padding, dilation in steps
    )


def _less(size: Size) -> Size:
    return tuple(-each for each in size)


def _add(
    elements: Values, node: Node, name: str, at: At, taps: tuple[Place, ...], conditions: tuple[Condition, ...]
) -> None:
    """The line that takes in one tap, which is at a place of the operand."""
    source, *weights = node.operands
    assert node.window is not None
    shape = elements.shape(source)
    lead, places, behind = _apart(node.window, at)
    sized = list(zip(places, _apart(node.window, shape)[1], strict=True))
    bounds = [Condition(place, (0,) * len(size), size) for place, size in sized]
    own = tuple(bound for bound in bounds if not bound.always)
    if weights:
        each = tuple(out // channels for out, channels in zip(node.shape[1], shape[1], strict=True))
        lead = (lead[0], lead[1].quotient(each))
    inside = tuple(place.below(size) for place, size in sized)
    found = elements.value(source, (*lead, *inside, *behind), (*conditions, *own))
    loaded = _is_loaded(elements, source)
    if own and (node.operation == "max" or not loaded):  # what is loaded from outside of the bounds is 0
        mask = " & ".join(map(elements.condition, own))
        found = f"tl.where({mask}, {found}, {NEUTRAL[node.operation]})"
    if node.operation == "max":
        elements.writer.line(f"{name} = tl.maximum({name}, {found}, propagate_nan=tl.PropagateNan.ALL)")
    elif not weights:
        elements.writer.line(f"{name} += {found}")
    else:
        none = number_place((0,) * len(node.shape[1]))
        weight = elements.value(weights[0], broadcast_at((at[1], none, *taps), elements.shape(weights[0])), conditions)
        elements.writer.line(f"{name} += {found} * {weight}")


def _is_loaded(elements: Values, source: Operand) -> bool:
    """Whether an operand comes from outside, its dimensions in another order at most."""
    if not isinstance(source, str):
        return False
    node = elements.writer.body.node(source)
    return node is None or (isinstance(node.index, Permuted) and _is_loaded(elements, node.operands[0]))


def _count(window: Window) -> int:
    """How many taps a window has at the full shapes."""
    count = 1
    for size in window.size:
        count *= size[0]
    return count
