"""conv_results: what a convolution's kernel does with the tile it has made, and where that goes.

Where the channels are reduced the tile has all of them. It is turned then: a row for each position, along which reductions
go.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, product, same
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.positions import Windowed, bracketed, factor
from mtmc.rewrite.templates.row_passes import whole
from mtmc.rewrite.templates.writer import Writer


class Convolved(Protocol):
    """What is asked of the kernel that is being written, see `conv_kernel.ConvKernel`."""

    graph: Graph
    body: Body
    writer: Writer
    found: Windowed
    axes: tuple[str, ...]
    last: bool
    reduces: bool
    phased: bool
    swapped: bool
    channels: str
    outside: list[str]
    n_rows: str
    n_channels: str


def write_results(kernel: Convolved) -> None:
    """Work on the result, and its stores."""
    writer, found = kernel.writer, kernel.found
    pixels = factor(kernel.outside)
    if kernel.phased:
        pixel = ""
        for axis, size in zip(kernel.axes, kernel.outside, strict=True):
            pixel = f"{bracketed(pixel)} * {size} + at_{axis}" if pixel else f"at_{axis}"
        writer.line(f"pixel = {pixel}")
    else:
        writer.line(f"pixel = cols % {pixels}")
    volume = product(found.outputs)
    if any(same(product(kernel.graph.values[load].shape), product(found.node.shape)) for load in kernel.body.loads):
        writer.preset(volume, "n_pixels")
    names = (kernel.channels, "row_mask", "col_mask")
    if kernel.reduces:
        _turned(kernel)
        names = ("cols", "channel_mask", "place_mask")
    channels, places = Group(names[0], found.node.shape[1], names[1]), Group("pixel", volume, names[2])
    inner = (places, channels) if kernel.last else (channels, places)
    groups = (Group("batch", found.node.shape[0], names[2]), *inner)
    variables: Variables = {found.node.name: found.node.name}
    _after(kernel, groups, variables)
    channel, mask = (channels.index, "mask") if kernel.reduces else (kernel.channels, "row_mask & col_mask")
    if any(_has_channels(kernel, value) for value in kernel.body.stores):
        if kernel.last:
            writer.line(f"offs = (batch * {pixels} + pixel) * {kernel.n_channels} + {channel}")
        else:
            writer.line(f"offs = (batch * {kernel.n_channels} + {channel}) * {pixels} + pixel")
    for value in kernel.body.stores:
        if _has_channels(kernel, value):
            writer.store_at(value, variables[value], groups, mask, "offs")
        else:
            writer.store_at(value, variables[value], (groups[0], places), places.mask, f"batch * {pixels} + pixel")


def _has_channels(kernel: Convolved, value: str) -> bool:
    return same(product(kernel.graph.values[value].shape), product(kernel.found.node.shape))


def _turned(kernel: Convolved) -> None:
    """Turn the tile, so that reductions go along its rows."""
    writer, name = kernel.writer, kernel.found.node.name
    writer.comment("a row for each position, with all of its channels")
    if not kernel.swapped:
        writer.line(f"{name} = tl.trans({name})")
    writer.line("batch, pixel, cols = tl.trans(batch), tl.trans(pixel), tl.trans(rows)")
    if kernel.phased:
        writer.comment("a phase with fewer positions than another one has programs left over: they have no channels")
        writer.line("col_mask = col_mask & (block_m == 0)")
    writer.line("place_mask, channel_mask = tl.trans(col_mask), tl.trans(row_mask)")
    writer.line("mask = place_mask & channel_mask")


def _after(kernel: Convolved, groups: tuple[Group, ...], variables: Variables) -> None:
    """Work on the result, and where its channels are reduced on what they come to."""
    writer, narrow = kernel.writer, tuple(group for group in groups if group.index != "cols")
    if not kernel.reduces:
        write_maps(writer, [node.name for node in kernel.found.after], groups, variables)
        return
    for node in kernel.found.after:
        if node.kind == "reduce":
            whole(writer, node, variables[node.reads()[0]], variables, kernel.n_rows)
        else:
            full = same(product(node.shape), product(kernel.found.node.shape))
            write_maps(writer, [node.name], groups if full else narrow, variables)
