"""transposing: elementwise work between tensors whose neighbours lie along different dimensions.

Element by element in the order of the result, an operand that lies transposed is read by single numbers of many lines. A
tile of both dimensions reads it along the one and writes the result along the other; the two orders meet in shared memory,
which the compiler sees to.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Trailing
from mtmc.rewrite.graph import Graph, Size, Tensor, is_one, product
from mtmc.rewrite.index_maps import Flipped, Joined, Padded, Permuted, Rolled, Sliced
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.taps import is_tapped
from mtmc.rewrite.templates.writer import Writer

LEAST = 16
"""Elements of either dimension of a tile, at the full shapes: fewer share no line."""

SMALL = 64
"""An operand with less than one of so many of the elements is read as it lies: most of its lines are at hand. Others are
not, though the cache holds them: each number is 32 bytes on its way from there (angles of 1500 x 256 beside 8 x 512 x 1500
numbers, H200, estimated: 43 us)."""

_ALONG = (Sliced, Padded, Flipped, Rolled)
"""Index maps that keep the dimensions as they are."""
Axes = tuple[int | None, ...]
"""Of which dimension of the iteration space each dimension of a value is; None for one of size 1."""


@dataclass(frozen=True)
class Transposed:
    """How a space lies in tiles. lead, across, along: the sizes of what stands one behind the other; () of no dimensions.

    The result's neighbours lie along the last, those of some operand across."""

    lead: Size
    across: Size
    along: Size


def transposed(graph: Graph, body: Body) -> Transposed | None:
    """The tiles of a body; None where all that it reads lies as its results do, or these have several shapes."""
    shape = graph.values[body.stores[0]].shape
    if any(graph.values[value].shape != shape for value in body.stores):
        return None
    last = max((axis for axis, size in enumerate(shape) if not is_one(size)), default=0)
    for tensor, axes in _read(graph, body, tuple(range(len(shape)))):
        run = _run(tensor, axes)
        small = SMALL * product(tensor.shape)[0] < product(shape)[0] if tensor.shape else True
        if run is None or run[1] >= last or small or last not in axes:  # the same for all neighbours of the result
            continue
        found = Transposed(product(shape[: run[0]]), product(shape[run[0] : run[1] + 1]), product(shape[run[1] + 1 :]))
        if min(found.across[0], found.along[0]) >= LEAST:
            return found
    return None


def _read(graph: Graph, body: Body, space: Axes) -> list[tuple[Tensor, Axes]]:
    """Tensors from outside that are read at the place at hand, or at that one with its dimensions in another order."""
    found, known = list[tuple[Tensor, Axes]](), set[tuple[str, Axes]]()
    waiting: list[tuple[str, Axes]] = [(value, space) for value in body.stores]
    while waiting:
        name, axes = waiting.pop()
        if (name, axes) in known:
            continue
        known.add((name, axes))
        node = body.node(name)
        if node is None:
            found.append((graph.values[name], axes))
        elif node.kind == "index" and isinstance(node.index, Permuted):
            turned = dict(zip(node.index.dims, axes, strict=True))
            waiting += [(read, tuple(turned[dim] for dim in range(len(axes)))) for read in node.reads()]
        elif node.kind == "index" and isinstance(node.index, Joined):
            waiting += [(read, axes) for read in node.reads()]
        elif is_tapped(node) or (node.kind == "index" and isinstance(node.index, _ALONG)):
            waiting.append((node.reads()[0], axes))
        elif node.kind == "map":
            for item in node.operands:
                if isinstance(item, (str, Trailing)):
                    waiting.append(_operand(graph, body, item, axes))
    return found


def _operand(graph: Graph, body: Body, item: str | Trailing, axes: Axes) -> tuple[str, Axes]:
    """An operand of a map whose dimensions are `axes`, with its own."""
    value, ones = (item.value, item.ones) if isinstance(item, Trailing) else (item, 0)
    node = body.node(value)
    shape = graph.values[value].shape if node is None else node.shape
    own = axes[len(axes) - len(shape) - ones : len(axes) - ones]
    return value, tuple(None if is_one(size) else axis for axis, size in zip(own, shape, strict=True))


def _run(tensor: Tensor, axes: Axes) -> tuple[int, int] | None:
    """The dimensions of the space along which a tensor's neighbours lie, as first and last; None where that is not known."""
    if not tensor.contiguous and not tensor.strides:
        return None
    order = sorted((stride[0], axis) for axis, stride in enumerate(tensor.lying) if not is_one(tensor.shape[axis]))
    places = [axes[axis] for _, axis in order]
    if not places or order[0][0] != 1:
        return None
    last = first = places[0]
    for place in places[1:]:
        if first is None or place != first - 1:
            break
        first = place
    return None if first is None or last is None else (first, last)


def write_tile(writer: Writer, found: Transposed) -> tuple[Group, ...]:
    """Lines that say which elements the program `block` has. Returns: the iteration space."""
    across, along = writer.preset(found.across, "n_across"), writer.preset(found.along, "n_along")
    writer.widen("block")
    writer.line(f"tiles = tl.cdiv({along}, BLOCK_ALONG)")
    writer.line("along = (block % tiles * BLOCK_ALONG + tl.arange(0, BLOCK_ALONG))[None, :]")
    writer.line("block = block // tiles")
    groups: tuple[Group, ...] = (
        Group("across", found.across, "across_mask"),
        Group("along", found.along, "along_mask"),
    )
    if found.lead and not is_one(found.lead):
        writer.line(f"tiles = tl.cdiv({across}, BLOCK_ACROSS)")
        writer.line("across = (block % tiles * BLOCK_ACROSS + tl.arange(0, BLOCK_ACROSS))[:, None]")
        writer.line("lead = block // tiles")
        groups = (Group("lead", found.lead, ""), *groups)
    else:
        writer.line("across = (block * BLOCK_ACROSS + tl.arange(0, BLOCK_ACROSS))[:, None]")
    writer.line(f"across_mask = across < {across}")
    writer.line(f"along_mask = along < {along}")
    writer.line("mask = across_mask & along_mask")
    return groups
