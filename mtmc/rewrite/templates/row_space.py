"""row_space: which rows and columns a program of a rowwise kernel has, and the iteration space that they make.

Rows that lie side by side (`Layout.inner`) may be those of one outer index: that is one number then, and what is looked up
or computed by it and a column, or read for some of those neighbours alike, is there once for all rows.
"""

from __future__ import annotations

from mtmc.rewrite.graph import Size, is_one
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.rows import Layout
from mtmc.rewrite.templates.writer import Writer

ROWS = ("rows", "before", "outer", "inner")
"""The running indices of rows."""
FEW_LEFT = 8
"""Blocks of rows of one outer index, of which the last may have fewer rows."""


def within(layout: Layout, block_rows: int) -> bool:
    """Whether all rows of a program have one outer index. Few programs have fewer rows than others for it, at the full
    shapes."""
    if is_one(layout.inner) or is_one(layout.outer):
        return False
    return layout.inner[0] % block_rows == 0 or layout.inner[0] >= FEW_LEFT * block_rows


def rows_of_one(writer: Writer, layout: Layout) -> tuple[Group, ...]:
    """Write which rows a program has, all of one outer index. Returns: what they run over."""
    inner = writer.size(layout.inner)
    writer.line(f"blocks = tl.cdiv({inner}, BLOCK_ROWS)")
    writer.line("outer = tl.program_id(0) // blocks")
    writer.line("first_row = tl.program_id(0) % blocks * BLOCK_ROWS")
    return of_one_outer(writer, layout.outer, layout.inner)


def of_one_outer(writer: Writer, outer: Size, inner: Size) -> tuple[Group, ...]:
    """Write the rows from inner index `first_row` on, of the index `outer`. Returns: what they run over."""
    count = writer.size(inner)
    writer.line("inner = (first_row + tl.arange(0, BLOCK_ROWS))[:, None]")
    writer.widen("outer", "inner")
    writer.line(f"row_mask = inner < {count}")
    writer.line(f"rows = outer * {count} + inner")
    writer.rows_of_one = True
    return Group("outer", outer, ""), Group("inner", inner, "row_mask")


def any_rows(writer: Writer, layout: Layout, rows: str) -> tuple[Group, ...]:
    """Write which rows a program has, whatever they are. rows: expression; "" where it is written. Returns: what they run
    over."""
    if rows:
        writer.line(f"rows = {rows}")
    writer.widen("rows")
    writer.line(f"row_mask = rows < {writer.size(layout.rows)}")
    if layout.before:
        groups = writer.size(layout.outer)
        writer.line(f"before = rows // {groups}")
        writer.line(f"outer = rows % {groups}")
        return Group("before", layout.before, "row_mask"), Group("outer", layout.outer, "row_mask")
    if is_one(layout.inner):
        return (Group("rows", layout.outer, "row_mask"),)
    inner = writer.size(layout.inner)
    writer.line(f"outer = rows // {inner}")
    writer.line(f"inner = rows % {inner}")
    return Group("outer", layout.outer, "row_mask"), Group("inner", layout.inner, "row_mask")


def columns_at_hand(writer: Writer, layout: Layout, columns: str, last: str) -> None:
    """Write which columns are at hand, up to `last`."""
    writer.line(f"cols = {columns}")
    if is_one(layout.outer) and not is_one(layout.inner):
        writer.widen("cols")  # they are what offsets begin with
    if layout.lead:
        inside = writer.size(layout.inside)
        writer.line("lead = cols" if inside == "1" else f"lead = cols // {inside}")
        writer.line("inside = 0" if inside == "1" else f"inside = cols % {inside}")
    writer.line(f"col_mask = cols < {last}")
    writer.line("mask = row_mask & col_mask")


def space(layout: Layout, rows: tuple[Group, ...]) -> tuple[Group, ...]:
    """The iteration space, in the order of memory. rows: what they run over."""
    if len(rows) == 2 and is_one(layout.inner) and not layout.before:  # all columns stand behind both
        return (*rows, Group("cols", layout.cols, "col_mask"))
    first, behind = rows[: 1 + bool(layout.before)], rows[1 + bool(layout.before) :]
    if not layout.lead:
        return (*first, Group("cols", layout.cols, "col_mask"), *behind)
    lead, inside = Group("lead", layout.lead, "col_mask"), Group("inside", layout.inside, "col_mask")
    return (*first[:-1], lead, first[-1], inside, *behind)
