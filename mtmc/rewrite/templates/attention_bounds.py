"""attention_bounds: the lines of a kernel that say from which column to which a block of queries looks, `first` and `last`.

They lie at ends of blocks of columns, and between them masks say which columns a row sees. Where a row and a column must
have something in common (the number of a document), a program looks at that of all columns first, which is a number each
where keys and values are hundreds, and then at keys from the first to the last that some row may see: whatever their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtmc.rewrite.body import Varying
from mtmc.rewrite.graph import Graph, Size, product
from mtmc.rewrite.space import Group, bare
from mtmc.rewrite.templates.attention_masks import Bound, Element, Window
from mtmc.rewrite.templates.elements import Elements, Variables
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

SCANNED = 1024
"""Columns that a program looks at together when it looks for those that have something in common with its rows."""


class BoundedAttention(Protocol):
    """What is asked of the attention that is being written, see `attention_kernel.Kernel`."""

    graph: Graph
    writer: Writer
    found: SoftmaxProduct

    def row_groups(self) -> tuple[Group, ...]: ...


def write_window(writer: Writer, found: SoftmaxProduct, window: Window, block: str) -> None:
    """Lines for what numbers of rows and columns say. block: the name of the block's number."""
    columns, first, last = writer.size(found.columns), "0", writer.size(found.columns)
    writer.comment("columns that no row of the block can see are left out")
    if window.high is not None:
        before = f"{block} * BLOCK_M - {number_text(writer, window.high)}"
        first = f"tl.minimum(tl.maximum({before}, 0), {columns}) // BLOCK_N * BLOCK_N"
    if window.low is not None:
        behind = f"({block} + 1) * BLOCK_M - {number_text(writer, window.low)}"
        last = f"tl.minimum({columns}, tl.cdiv(tl.maximum({behind}, 0), BLOCK_N) * BLOCK_N)"
    writer.line(f"first = {first}")
    writer.line(f"last = tl.maximum({last}, first)")


def write_bounds(kernel: BoundedAttention, window: Window, known: Variables) -> None:
    """Lines that narrow `first` and `last` by what is loaded. known: what stands in variables. Raises: NotCovered."""
    writer, groups = kernel.writer, kernel.row_groups()
    columns = writer.size(kernel.found.columns)
    elements = Elements(writer, groups, dict(known))
    for bound in window.bounds:
        text = f"({_text(elements, bound.element)} + {bound.more})" if bound.more else _text(elements, bound.element)
        if bound.end:
            most = f"tl.max(tl.where(row_mask, {text}, 0))"
            writer.line(f"end = tl.minimum(tl.maximum({most}, 0), {columns}).to(tl.int32)")
            writer.line("last = tl.minimum(last, tl.cdiv(end, BLOCK_N) * BLOCK_N)")
        else:
            least = f"tl.min(tl.where(row_mask, {text}, {columns}))"
            writer.line(f"begin = tl.minimum(tl.maximum({least}, 0), {columns}).to(tl.int32)")
            writer.line("first = tl.maximum(first, begin // BLOCK_N * BLOCK_N)")
    for row, col in window.pairs:
        _write_scan(kernel, elements, row, col)
    writer.line("last = tl.maximum(last, first)")


def write_lengths(writer: Writer, found: SoftmaxProduct, bounds: Sequence[Bound], block: int) -> None:
    """Lines that narrow `first` and `last` by numbers that are one for all rows of a head. block: columns of a block.

    Raises: NotCovered."""
    elements, columns = Elements(writer, (Group("batch", product(found.batch), ""),), {}), writer.size(found.columns)
    for bound in bounds:
        text = f"({_text(elements, bound.element)} + {bound.more})" if bound.more else _text(elements, bound.element)
        name = "end" if bound.end else "begin"
        writer.line(f"{name} = tl.minimum(tl.maximum({text}, 0), {columns}).to(tl.int32)")
        if bound.end:
            writer.line(f"last = tl.minimum(last, tl.cdiv(end, {block}) * {block})")
        else:
            writer.line(f"first = tl.maximum(first, begin // {block} * {block})")


def _write_scan(kernel: BoundedAttention, elements: Elements, row: Element, col: Element) -> None:
    """Lines that look for the columns whose number is between the least and the largest of the rows'."""
    writer, found = kernel.writer, kernel.found
    writer.comment("columns that have what a row looks for lie between these")
    writer.line(f"wanted = {_text(elements, row)} + tl.zeros([BLOCK_M, 1], tl.int64)")
    writer.line("least = tl.min(tl.where(row_mask, wanted, 2**62))")
    writer.line("most = tl.max(tl.where(row_mask, wanted, -(2**62)))")
    writer.line("begin = last")
    writer.line("end = first")
    writer.line(f"for start in range(first, last, {SCANNED}):")
    writer.level += 1
    writer.line(f"cols = start + tl.arange(0, {SCANNED})[None, :]")
    writer.line("col_mask = cols < last")
    groups = (kernel.row_groups()[0], Group("cols", found.columns, "col_mask"))
    own = Elements(writer, groups, dict(elements.variables))
    writer.line(f"held = {_text(own, col)} + tl.zeros([1, {SCANNED}], tl.int64)")
    writer.line("shared = col_mask & (held >= least) & (held <= most)")
    writer.line("begin = tl.minimum(begin, tl.min(tl.where(shared, cols, last)))")
    writer.line("end = tl.maximum(end, tl.max(tl.where(shared, cols + 1, first)))")
    writer.level -= 1
    writer.line("first = tl.maximum(first, begin // BLOCK_N * BLOCK_N)")
    writer.line("last = tl.minimum(last, tl.cdiv(end, BLOCK_N) * BLOCK_N)")


def _text(elements: Elements, element: Element) -> str:
    text = elements.value(*element)
    return text if bare(text).isidentifier() else f"({text})"


def number_text(writer: Writer, number: Size) -> str:
    """A bound of a window in the kernel."""
    if len(set(number)) == 1:
        return f"({number[0]})" if number[0] < 0 else str(number[0])
    for less in (0, 1, -1):  # the width of a window, say, that the mask has as it is
        known = Varying(tuple(each + less for each in number))
        if any(known in node.operands for node in writer.body.nodes):
            name = writer.number(known)
            return f"({name} - {less})" if less else name
    return writer.number(Varying(number))
