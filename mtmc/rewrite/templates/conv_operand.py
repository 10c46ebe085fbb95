"""conv_operand: the lines of a convolution's kernel that load a tile of its operand."""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.positions import Windowed, factor
from mtmc.rewrite.templates.writer import Writer


class Convolving(Protocol):
    """What is asked of the kernel that is being written, see `conv_kernel.ConvKernel`."""

    graph: Graph
    writer: Writer
    found: Windowed
    axes: tuple[str, ...]
    loop: str
    last: bool
    grouped: bool
    mask: str
    inside: list[str]
    n_inner: str
    n_sources: str


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
    if kernel.last:
        offset = "batch"
        for axis, size in zip(kernel.axes, kernel.inside, strict=True):
            offset = f"({offset} * {size} + {axis})"
        offset = f"{offset} * {kernel.n_sources} + {channel}"
    elif source.contiguous:
        writer.contiguous.add(found.source)
        offset = f"batch * {kernel.n_sources} + {channel}"
        for axis, size in zip(kernel.axes, kernel.inside, strict=True):
            offset = f"({offset}) * {size} + {axis}"
    else:
        indices = ["batch", f"({channel})", *kernel.axes]
        offset = " + ".join(f"{index} * {writer.stride(found.source, at)}" for at, index in enumerate(indices))
    writer.line(f"places = {pointer} + {offset}")
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
