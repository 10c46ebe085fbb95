"""product_turned: the small kernel that copies a product's right operand [k, n] as [n, k].

torch copies it element by element in the order of the copy, and reads single numbers of many lines. A program reads a tile
along its rows and writes it along its columns; the two orders meet in shared memory, which the compiler sees to.
"""

from __future__ import annotations

from mtmc.rewrite.templates.launcher import Launch
from mtmc.rewrite.templates.product_kernel import ProductKernel
from mtmc.rewrite.templates.product_operands import Operands
from mtmc.rewrite.templates.writer import Writer

NAME = "transposed"
"""What the copy is called in the launcher."""
TILE, WARPS = 64, 8
"""Numbers along both sides of a tile, and warps of a program."""


def turn(kernel: ProductKernel) -> Writer:
    """Writes the kernel."""
    found, writer = kernel.found, Writer(kernel.graph, kernel.body, f"{kernel.name}_turn_kernel")
    n_n, n_k = writer.preset(found.n, "n_n"), writer.preset(found.k, "n_k")
    writer.line("tile = tl.program_id(0)")
    writer.widen("tile")
    writer.line(f"down = tl.cdiv({n_k}, TILE)")
    writer.line("ks = (tile % down * TILE + tl.arange(0, TILE))[:, None]")
    tiles = "tile // down"
    if found.batch:
        writer.line(f"across = tl.cdiv({n_n}, TILE)")
        writer.line("batch = tile // (down * across)")
        tiles = "tile // down % across"
    writer.line(f"cols = ({tiles} * TILE + tl.arange(0, TILE))[None, :]")
    writer.line(f"mask = (ks < {n_k}) & (cols < {n_n})")
    operands = Operands(writer, found, transposed_copy=False)
    down, across = operands.right_strides(found.right)
    writer.line(f"right = tl.load({operands.base(found.right)} + ks{down} + cols{across}, mask=mask)")
    place = f"(batch * {n_n} + cols)" if found.batch else "cols"
    writer.line(f"tl.store({NAME} + {place} * {n_k} + ks, right, mask=mask)")
    return writer


def turn_lines(kernel: ProductKernel) -> list[str]:
    """The launcher's lines, without indentation, that make room for the copy."""
    right = f"{kernel.found.right}.transpose(-2, -1)"
    return [f"{NAME} = torch.empty_like({right}, memory_format=torch.contiguous_format)  # n, then k"]


def turn_launch(kernel: ProductKernel, writer: Writer, n: str, k: str, batch: str) -> Launch:
    """How the kernel is started. n, k, batch: expressions of the launcher."""
    tiles = f"triton.cdiv({n}, {TILE}) * triton.cdiv({k}, {TILE})"
    grid = tiles if batch == "1" else f"{batch} * {tiles}"
    constants = (("WIDE", f"{kernel.found.right}.numel() >= 2**31"), ("TILE", str(TILE)))
    return Launch(writer.name, writer, (), (NAME,), (grid,), constants, WARPS)
