"""product_groups: rows in groups one behind the other, each multiplied by a matrix of its own: a mixture of experts.

Where groups end stands in memory. A launch has as many blocks of rows as there can be: each group fills whole blocks but
for its last one, and has a row at least or none. A program finds by its number which group its block belongs to, and looks
at no more than where all groups end: no loop, and no number that the host waits for.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.graph import Graph, power_of_two_above
from mtmc.rewrite.plan import Setting
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.writer import Writer

MOST_ROWS = 128
"""Of a tile."""


class GroupedProduct(Protocol):
    """What is asked of the product that is being written, see `ProductKernel`."""

    graph: Graph
    writer: Writer
    found: Product
    n_m: str


def grouped_tile(graph: Graph, found: Product) -> dict[str, Setting]:
    """A tile with as many rows as groups have on average, at the full shapes; no larger one of fp32."""
    if graph.values[found.left].dtype == "float32":
        return {}
    rows = min(MOST_ROWS, max(16, power_of_two_above(-(-found.m[0] // found.groups[0]))))
    return {"block_m": rows, "block_n": 128, "block_k": 64, "num_stages": 3, "num_warps": 8 if rows == MOST_ROWS else 4}


def blocks_in_kernel(rows: str, groups: str) -> str:
    """How many blocks of rows there can be."""
    return f"tl.minimum(tl.cdiv({rows}, BLOCK_M) + {groups} - 1, {rows})"


def blocks_in_launcher(rows: str, groups: str, block: str) -> str:
    """The same for the launcher."""
    return f"min(triton.cdiv({rows}, {block}) + {groups} - 1, {rows})"


def own_group(kernel: GroupedProduct) -> None:
    """Lines with the group and the rows of the block `block_m`; none where all groups have ended before."""
    writer, found = kernel.writer, kernel.found
    line, offsets, count = writer.line, writer.pointer(found.offsets), writer.size(found.groups)
    step = "" if kernel.graph.values[found.offsets].contiguous else f" * {writer.stride(found.offsets, 0)}"
    if not step:
        writer.contiguous.add(found.offsets)
    writer.comment("the group that the block belongs to, by where groups end")
    line("groups = tl.arange(0, GROUPS)")
    line(f"ends = tl.load({offsets} + groups{step}, mask=groups < {count}, other=0)")
    line(f"ends = tl.minimum(ends, {kernel.n_m}).to(tl.int32)")
    before = f"(groups - 1){step}" if step else "groups - 1"
    line(f"begins = tl.load({offsets} + {before}, mask=(groups > 0) & (groups < {count}), other=0).to(tl.int32)")
    line("blocks = tl.cdiv(tl.maximum(ends - begins, 0), BLOCK_M)")
    line("through = tl.cumsum(blocks, 0)")
    line("own = (block_m < through) & (block_m >= through - blocks)")
    line("matrix = tl.sum(tl.where(own, groups, 0))")
    line("begin = tl.sum(tl.where(own, begins + (block_m - through + blocks) * BLOCK_M, 0))")
    line("end = tl.sum(tl.where(own, ends, 0))")
    line("rows = begin + tl.arange(0, BLOCK_M)[:, None]")
    writer.widen("rows", "matrix")
    line("row_mask = rows < end")
