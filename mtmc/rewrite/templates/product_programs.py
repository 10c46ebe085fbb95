"""product_programs: which tiles of a product a program makes, where it makes more than one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtmc.rewrite.body import Node
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.writer import Writer


class TiledProduct(Protocol):
    """What is asked of the product that is being written, see `ProductKernel`."""

    writer: Writer
    found: Product
    variables: Variables
    n_batch: str
    n_k: str
    specialized: bool

    def tiles(self) -> str: ...
    def groups(self) -> tuple[Group, ...]: ...
    def after(self, nodes: Sequence[Node], groups: tuple[Group, ...], variables: Variables, writer: Writer) -> None: ...
    def store_wide(self, writer: Writer, variables: Variables) -> None: ...


INSIDE_TILE = "tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]"
"""Where a tile's elements lie in a part of it."""


def write_block_order(writer: Writer, down: str, across: str, order: str) -> None:
    """Which tile `program` stands for: `block_m` and `block_n`. down, across: numbers of blocks. order: "mn" or "nm", along
    which GROUP_M of them come first."""
    first, second = ("m", "n") if order == "mn" else ("n", "m")
    long, short = (down, across) if first == "m" else (across, down)
    writer.comment(f"GROUP_M blocks along {first} share the same blocks along {second} while those are in the cache")
    writer.line(f"blocks_{first} = {long}")
    writer.line(f"blocks_{second} = {short}")
    writer.line(f"group = program // (GROUP_M * blocks_{second})")
    writer.line(f"group_size = tl.minimum(blocks_{first} - group * GROUP_M, GROUP_M)")
    writer.line(f"inside = program % (GROUP_M * blocks_{second})")
    writer.line(f"block_{first} = group * GROUP_M + inside % group_size")
    writer.line(f"block_{second} = inside // group_size")


def own_tiles(kernel: TiledProduct) -> None:
    """The program's tiles: every so many of them."""
    writer = kernel.writer
    writer.line(f"tiles = {kernel.tiles()}")
    last = f"tiles * {kernel.n_batch}" if kernel.found.batch else "tiles"
    name = "tile" if kernel.found.batch else "program"
    # Loads of the next tile begin before this one is stored: in one loop, or in warps of their own.
    way = "warp_specialize=SPECIAL" if kernel.specialized else "flatten=True"
    writer.line(f"for {name} in tl.range(tl.program_id(0), {last}, tl.num_programs(0), {way}):")
    writer.level += 1
    if kernel.found.batch:
        writer.line("program = tile % tiles")
        writer.line("batch = tile // tiles")


def own_slices(kernel: TiledProduct) -> None:
    """The program's tiles, and its share of those that are left when every program has had as many as the others."""
    writer = kernel.writer
    writer.line(f"tiles = {kernel.tiles()}")
    writer.line(f"blocks_k = tl.cdiv({kernel.n_k}, BLOCK_K)")
    writer.line("whole = tiles // tl.num_programs(0)")
    writer.comment("the slices of the tiles that are left are shared evenly: a program has parts of two tiles at most")
    writer.line("slices = tiles % tl.num_programs(0) * blocks_k")
    writer.line("share = tl.cdiv(slices, tl.num_programs(0))")
    writer.line("begin = tl.minimum(tl.program_id(0) * share, slices)")
    writer.line("end = tl.minimum(begin + share, slices)")
    writer.line("middle = tl.minimum((begin // blocks_k + 1) * blocks_k, end)")
    writer.line("for turn in range(0, whole + 2):")
    writer.level += 1
    writer.line("at = tl.where(turn == whole, begin, middle)")
    writer.line("alone = turn < whole")
    writer.line("tile = tl.where(alone, tl.program_id(0), at // blocks_k)")
    writer.line("program = tl.minimum(turn, whole) * tl.num_programs(0) + tile")
    writer.line("first = tl.where(alone, 0, at % blocks_k)")
    writer.line("count = tl.where(alone, blocks_k, tl.where(turn == whole, middle - begin, end - middle))")


def store_part(kernel: TiledProduct) -> None:
    """What the program has of a tile: a result if that is all of it, else its first or its second part."""
    writer = kernel.writer
    writer.line("if count == blocks_k:")
    writer.level += 1
    kernel.after(kernel.found.after, kernel.groups(), kernel.variables, writer)
    kernel.store_wide(writer, kernel.variables)
    writer.level -= 1
    writer.line("elif count > 0:")
    writer.level += 1
    writer.line("place = tl.program_id(0) * 2 + turn - whole")
    writer.line(f"part = shares + place * BLOCK_M * BLOCK_N + {INSIDE_TILE}")
    writer.line(f"tl.store(part, {kernel.found.dot.name})")
    writer.level -= 1
