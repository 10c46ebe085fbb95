"""conv_operand: the lines of a convolution's kernel that load a tile of its operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.positions import Windowed, factor, times
from mtmc.rewrite.templates.writer import Writer


class Convolving(Protocol):
    """What is asked of the kernel that is being written, see `conv_kernel.ConvKernel`."""

    graph: Graph
    writer: Writer
    found: Windowed
    axes: tuple[str, ...]
    dilation: list[str]
    loop: str
    last: bool
    grouped: bool
    mask: str
    inside: list[str]
    n_inner: str
    n_sources: str


def begin_columns(kernel: Convolving) -> None:
    """Where the window of each column begins in memory, before a loop over all taps and channels: an element is as far from
    there as its channel and tap say, which all columns have in common. So it is one addition for each element."""
    starts = [f"from_{axis}" for axis in kernel.axes]
    writer, pointer = kernel.writer, kernel.writer.pointer(kernel.found.source)
    writer.line(f"begins = {pointer} + {_offset(kernel, 'batch', '', starts)}")


def _offset(kernel: Convolving, batch: str, channel: str, places: Sequence[str]) -> str:
    """How far an element, or a part of the way to it, is from the operand's first. batch, channel, places: where it is in
    each dimension, "" for those that the part leaves out."""
    found, source = kernel.found, kernel.graph.values[kernel.found.source]
    indices = [batch, channel, *places]
    if not kernel.last and not source.contiguous:
        strides = (kernel.writer.stride(found.source, at) for at in range(len(indices)))
        parts = zip(indices, strides, strict=True)
        return " + ".join(f"{_factor(index)} * {stride}" for index, stride in parts if index)
    sizes = ["", kernel.n_sources, *kernel.inside]
    order = [0, *range(2, len(indices)), 1] if kernel.last else range(len(indices))
    text = ""
    for at in order:
        text = f"{_factor(text)} * {sizes[at]}" if text else ""
        text = " + ".join(part for part in (text, indices[at]) if part)
    return text


def _factor(text: str) -> str:
    """An expression as a factor of a product."""
    return text if text.isidentifier() else f"({text})"


def load_operand(kernel: Convolving) -> None:
    """The neighbourhoods: a tile of the operand, with the work before the convolution done on it."""
    writer, found, pointer = kernel.writer, kernel.found, kernel.writer.pointer(kernel.found.source)
    channel = "ks[:, None]"
    if kernel.loop == "channels" and kernel.last:
        channel = f"ks[:, None] % {kernel.n_inner}"
    elif kernel.loop == "channels":
        channel = f"ks[:, None] // {factor([f'KERNEL_{axis.upper()}' for axis in kernel.axes])}"
    if kernel.grouped:
        channel = f"tl.program_id(1) * {kernel.n_inner} + {channel}"
    source, mask = kernel.graph.values[found.source], f"k_mask[:, None] & {kernel.mask}"
    if source.contiguous and not kernel.last:
        writer.contiguous.add(found.source)
    if kernel.loop == "channels":
        taps = [times(f"tap_{axis}", step) for axis, step in zip(kernel.axes, kernel.dilation, strict=True)]
        writer.line(f"places = begins + ({_offset(kernel, '', channel, taps)})")
    else:
        writer.line(f"places = {pointer} + {_offset(kernel, 'batch', channel, kernel.axes)}")
    writer.line(f"b = tl.load(places, mask={mask}, other=0.0)")
    if not found.before:
        return
    fp32 = source.dtype == "float32"
    channels = Group(f"({channel})", found.shape[1], "k_mask[:, None]")
    places = [Group(axis, size, kernel.mask) for axis, size in zip(kernel.axes, found.inputs, strict=True)]
    groups = (
        Group("batch", found.shape[0], kernel.mask),
        *((*places, channels) if kernel.last else (channels, *places)),
    )
    shape = (found.shape[0], *found.shape[2:], found.shape[1]) if kernel.last else found.shape
    variables: Variables = {(found.source, shape): "b" if fp32 else "b.to(tl.float32)"}
    write_maps(writer, [node.name for node in found.before], groups, variables)
    # What lies outside the bounds must stay 0 whatever the work made of it.
    result = f"tl.where({mask}, {variables[found.before[-1].name]}, 0.0)"
    writer.line(f"b = {result}" + ("" if fp32 else f".to({pointer}.dtype.element_ty)"))
