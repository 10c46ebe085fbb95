"""product_symmetric: a product whose results are symmetric: only its tiles on and above the diagonal are made.

Each is stored where it lies, and its transpose where that does. Tiles are square, so that T of them stand side by side and
T (T + 1) / 2 are made. Programs are numbered as the places of a rectangle of as many: its rows are rows of the triangle, the
first ones from the diagonal on, and in front of each what is left of it: the last ones, backwards:

    T = 4:   0 0 0 0 0      block_m = 3 0 0 0 0      block_n = 3 0 1 2 3
             0 0 0 0 0                2 2 1 1 1                3 2 1 2 3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.symmetry import symmetric_values
from mtmc.rewrite.templates.pointwise import Variables
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.writer import Writer

SETTING = "symmetric"
SIDE = 32
"""Of a tile of the second kernel, where several programs share a product."""


class MirroredProduct(Protocol):
    """What is asked of the product that is being written, see `ProductKernel`."""

    body: Body
    n_m: str
    n_n: str


def is_symmetric(graph: Graph, body: Body, found: Product) -> bool:
    """Whether all results of a product's kernel are symmetric matrices."""
    plain = len(found.factors) == 1 and not (found.reduces or found.offsets or found.scales)
    if not plain or not same(found.m, found.n) or any(body.part(value) is not None for value in body.stores):
        return False
    shape = found.dot.shape
    stored = [graph.values.get(value) for value in body.stores]
    if any(tensor is None or not tensor.contiguous or tensor.shape != shape for tensor in stored):
        return False
    return len(shape) >= 2 and same(shape[-2], found.m) and symmetric_values(graph).issuperset(body.stores)


def check_symmetric(graph: Graph, body: Body, found: Product, stage: Stage) -> None:
    """Raises: NotCovered where a product is not symmetric, or its tiles are not square or go to programs in another way."""
    schedule = dict(stage.schedule)
    if not is_symmetric(graph, body, found):
        raise NotCovered("half of the tiles of a product that is not symmetric")
    if stage.number("block_m") != stage.number("block_n") or int(schedule.get("epilogue", 1)) > 1:
        raise NotCovered("half of the tiles of a product whose tiles are not square, or are stored in parts")
    if any(schedule.get(name) for name in ("stream_k", "specialized", "dispatch")):
        raise NotCovered("half of the tiles of a product that programs share by slices, or that has several tiles")


def tiles_of_half(blocks: str) -> str:
    """How many tiles are made. blocks: how many stand side by side; an expression of the kernel or the launcher."""
    return f"({blocks} * ({blocks} + 1) // 2)"


def rectangle(blocks: str) -> tuple[str, str]:
    """Rows and columns of as many places."""
    return f"({blocks} + 1) // 2", f"{blocks} + 1 - {blocks} % 2"


def fold_lines(writer: Writer, blocks: str) -> None:
    """From the place of a rectangle to the tile of the triangle that it stands for. blocks: see `tiles_of_half`."""
    writer.comment("tiles on and above the diagonal: a row of the triangle, and before it one of the last, backwards")
    writer.line(f"even = 1 - {blocks} % 2")
    writer.line("above = block_n >= block_m + even")
    writer.line(f"block_n = tl.where(above, block_n - even, {blocks} - 1 - block_n)")
    writer.line(f"block_m = tl.where(above, block_m, {blocks} - even - block_m)")


def mirror(
    kernel: MirroredProduct, writer: Writer, variables: Variables, store: Callable[[Variables], None], even: bool = True
) -> None:
    """Store the transposes of the results at hand on the other side of the diagonal. store: writes that, where `rows` and
    `cols` are. even: whether it may be known that tiles end with the matrix."""
    writer.line("if block_m != block_n:")
    writer.level += 1
    writer.line("rows = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]")
    writer.line("cols = block_m * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]")
    writer.widen("rows")
    writer.line(f"row_mask = (rows < {kernel.n_m})" + (" | EVEN_M" if even else ""))
    writer.line(f"col_mask = (cols < {kernel.n_n})" + (" | EVEN_N" if even else ""))
    turned: Variables = {}
    for value in kernel.body.stores:
        turned[value] = f"{value}_mirrored"
        writer.line(f"{value}_mirrored = tl.trans({variables[value]}.to({value}_ptr.dtype.element_ty))")
    store(turned)
    writer.level -= 1
