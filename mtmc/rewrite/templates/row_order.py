"""row_order: which rows of a rowwise kernel are at work at the same time, where indices say which matrix they are of.

Tokens that chose the same expert read the same weights. Program after program each token goes through the whole matrix of
each of its experts, and when the next one reads it again it has left the cache. With the programs of one place in all the
matrices one behind the other, a row of weights is read from memory once for all tokens that want it.

All rows of a program are of one matrix. Which one is a single number then, and a vector that the matrix is multiplied by is
loaded once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, Size, is_one, product
from mtmc.rewrite.index_maps import Looked
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import row_space
from mtmc.rewrite.templates.rows import Layout
from mtmc.rewrite.templates.writer import Writer

LOOKED_UP, IN_ORDER = "looked_up", "rows"
"""The setting "order" of a kernel: rows of one place in all that is looked up, or rows as they lie."""
MOST_MATRICES, LEAST_ROWS, LEAST_BYTES = 256, 64, 1 << 18
"""Looked up, of which all rows of one place are at work together; rows of each; and bytes, below which a matrix is in the
cache whenever it is read again."""


@dataclass(frozen=True)
class Matrices:
    """Matrices that indices pick, of which each row of a layout is one's row. count: of them. rows: of each.
    element_bytes: of their numbers."""

    count: Size
    rows: Size
    element_bytes: int


def matrices(graph: Graph, body: Body, layout: Layout) -> Matrices | None:
    """The matrices that are looked up; None where there are none, or they are small, or too many."""
    if layout.before or layout.lead or not is_one(layout.inner):
        return None
    for node in body.nodes:
        index = node.index
        if not isinstance(index, Looked) or index.aligned or index.first or index.dims != (0,):
            continue
        tensor = graph.values.get(node.reads()[0])
        looked, each = product(node.shape[: index.rank]), product(node.shape[index.rank : -1])
        if tensor is None or not looked or not each or product((looked, each)) != layout.rows:
            continue
        large = each[0] >= LEAST_ROWS and product(tensor.shape[1:])[0] * tensor.element_bytes >= LEAST_BYTES
        if large and 1 < looked[0] <= MOST_MATRICES:
            return Matrices(looked, each, tensor.element_bytes)
    return None


def rows_of_one(writer: Writer, found: Matrices) -> tuple[Group, ...]:
    """Write which rows a program has, all of one matrix: programs one behind the other have those of one place in all of
    them. Returns: what they run over."""
    count = writer.size(found.count)
    writer.line(f"outer = tl.program_id(0) % {count}")
    writer.line(f"first_row = tl.program_id(0) // {count} * BLOCK_ROWS")
    return row_space.of_one_outer(writer, found.count, found.rows)
