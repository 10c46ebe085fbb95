"""attention_columns: which columns (keys) a program of an attention's kernel goes through, a stretch for each tensor.

A program leaves out what masks hide from all of its rows (`attention_window`, `attention_bounds`), and what is not its
share (`attention_shares`). The lines that it works that out with come before its loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from mtmc.rewrite.templates.attention_bounds import BoundedAttention, write_bounds, write_window
from mtmc.rewrite.templates.attention_masks import Window
from mtmc.rewrite.templates.attention_shares import SharedAttention, own_share
from mtmc.rewrite.templates.attention_window import window_of
from mtmc.rewrite.templates.elements import Variables
from mtmc.rewrite.templates.softmax_product import Region, SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

FEW_QUERIES = 16
"""With so few a program does not look for the columns that its rows have something in common with."""


class ColumnedAttention(BoundedAttention, SharedAttention, Protocol):
    """What is asked of the attention that is being written, see `attention_kernel.Kernel`."""

    block: str
    packed: bool

    @property
    def numbers(self) -> tuple[str, str]: ...


@dataclass(frozen=True)
class Stretch:
    """Columns in one tensor. begin: the first that the program looks at, `limit` where it stops, and `end` where the columns
    end, all counted through all tensors."""

    region: Region
    begin: str
    end: str
    limit: str


def region_ends(writer: Writer, found: SoftmaxProduct) -> list[str]:
    """Where each region of columns ends, counted through all of them."""
    regions, ends = found.regions, list[str]()
    for at, region in enumerate(regions):
        name = writer.preset(region.columns, f"n_cols_{at + 1}" if len(regions) > 1 else "n_cols")
        ends.append(f"{ends[-1]} + {name}" if ends else name)
    return ends


def write_columns(kernel: ColumnedAttention, ends: list[str], known: Variables) -> list[Stretch]:
    """Lines that say which columns a program looks at. ends: of the regions. known: what stands in variables of the kernel.
    Raises: NotCovered."""
    writer, found = kernel.writer, kernel.found
    if len(found.regions) > 1:
        writer.line(f"n_cols = {ends[-1]}")
        ends = [*ends[:-1], "n_cols"]
    limits, window = ends, _window(kernel)
    begins = ["first" if window else "0", *ends]
    if window.of_places:
        write_window(writer, found, window, kernel.block)
    elif window and not found.causal:
        writer.line(f"last = tl.cast({ends[-1]}, tl.int32)")
    if found.causal:
        writer.comment("columns behind the block's last row are masked for all of its rows")
        writer.line(f"last = tl.minimum({ends[-1]}, ({kernel.block} + 1) * BLOCK_M)")
        limits = [*(f"tl.minimum({end}, last)" for end in ends[:-1]), "last"]
    if window.bounds or window.pairs:
        if not window.of_places:
            writer.line("first = tl.cast(0, tl.int32)")
        write_bounds(kernel, window, known)
    if window:
        limits = ["last"]
    if kernel.split > 1:
        own_share(kernel, bool(window))
        begins, ends, limits = ["first"], ["last"], ["last"]
    return [Stretch(*each) for each in zip(found.regions, begins, ends, limits, strict=False)]


def _window(kernel: ColumnedAttention) -> Window:
    """Which columns rows can see, where masks say so and columns are all in one tensor; what rows and columns are apart
    only where programs own all columns."""
    found = kernel.found
    if len(found.regions) > 1:
        return Window()
    window = window_of(kernel.graph, kernel.body, found, kernel.numbers)
    if found.rows[0] <= FEW_QUERIES:
        window = replace(window, pairs=())
    if found.causal or found.wide or kernel.split > 1 or kernel.packed:
        window = replace(window, low=None, high=None)
    return window
