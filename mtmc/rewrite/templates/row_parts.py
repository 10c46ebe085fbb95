"""row_parts: what programs have found of their shares of a row, as one: by a second kernel, or by programs that wait.

Each share leaves a number for each reduction in a workspace [rows, SPLIT]. A sum of squared distances leaves its own mean
beside it, unless the sum that this is made of is left, too; the place of an extreme stands beside the extreme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Node
from mtmc.rewrite.templates import row_online
from mtmc.rewrite.templates.row_extremes import EACH_ROW, accumulator, combined, first_place
from mtmc.rewrite.templates.row_passes import at_least_one, put_together, together, together_around
from mtmc.rewrite.templates.rows import Layout
from mtmc.rewrite.templates.writer import Writer

BEYOND = "2147483647"
"""More than any place in a row: they are 32-bit numbers."""


@dataclass(frozen=True)
class Shares:
    """How rows are cut, as expressions.

    mask: of the shares of the rows at hand. columns: how many each has, but for the last. count: how many shares are read.
    along: how they are reduced, see `EACH_ROW`. modifier: of the loads.
    """

    mask: str
    columns: str
    count: str
    along: str = EACH_ROW
    modifier: str = ""


def sum_beside(reductions: Iterable[Node], node: Node) -> Node | None:
    """Of the reductions that are found together, the sum of what a sum of squared distances is of; else None."""
    sums = (each for each in reductions if each.operation == "sum" and each.reads()[0] == node.reads()[0])
    return next(sums, None)


def workspaces(reductions: Sequence[Node], node: Node) -> list[str]:
    """Names of what shares of a row leave of one of some reductions."""
    beside = [f"{node.name}_centres"] * (node.operation == "deviations" and sum_beside(reductions, node) is None)
    beside += [f"{node.name}_places"] * node.operation.startswith("arg")
    return [f"{node.name}_parts", *beside]


def leave(writer: Writer, reductions: Sequence[Node], share: str) -> None:
    """Write how a program leaves what it has found. share: where, from the beginning of each workspace."""
    for node in reductions:
        value = f"{node.name}_top" if node.operation.startswith("arg") else node.name
        writer.line(f"tl.store({node.name}_parts + {share}, {value}, mask=row_mask)")
        if value != node.name:
            writer.line(f"tl.store({node.name}_places + {share}, {node.name}, mask=row_mask)")
        if f"{node.name}_centres" in workspaces(reductions, node):
            writer.line(f"tl.store({node.name}_centres + {share}, {node.name}_centre, mask=row_mask)")


def as_one(writer: Writer, layout: Layout, reductions: Sequence[Node], shares: Shares) -> None:
    """Write how the shares of some reductions are read and put together, each as `{name}`.

    Needs `shares`, a variable [1, count]. A maximum stands before the sum of exponentials that is found with it.
    """
    if any(node.operation == "deviations" for node in reductions):
        cols = writer.size(layout.cols)
        writer.line(f"widths = tl.minimum(tl.maximum({cols} - shares * {shares.columns}, 0), {shares.columns})")

    def read(node: Node, kind: str, name: str, other: str) -> None:
        address, modifier = f"{node.name}_{kind} + rows * SPLIT + shares", shares.modifier
        writer.line(f"{name} = tl.load({address}, mask={shares.mask}, other={other}{modifier})")

    for node in reductions:
        name = node.name
        read(node, "parts", f"{name}_share", accumulator(writer.body, node)[0])
        if node.operation == "deviations" and (total := sum_beside(reductions, node)) is not None:
            writer.line(f"{name}_means = {total.name}_share / tl.maximum(widths, 1)")
            writer.line(f"{name}_centre = {total.name} / {at_least_one(cols)}")
            together_around(writer, name, f"{name}_means", f"{name}_share", "widths", shares.along)
        elif node.operation == "deviations":
            read(node, "centres", f"{name}_means", "0.0")
            put_together(writer, name, f"{name}_means", f"{name}_share", "widths", cols, shares.along)
        elif node.operation.startswith("arg"):
            read(node, "places", f"{name}_place", "0")
            first_place(writer, node, f"{name}_share", f"{name}_place", BEYOND)
        elif name in layout.online:
            top = next(top for top in reductions if top.name == layout.online[name])
            writer.line(f"{top.name}_share = {combined(top.operation, f'{top.name}_share', row_online.LOWEST)}")
            row_online.put_together(writer, top, node, f"{top.name}_share", f"{name}_share", shares.along)
            row_online.restore(writer, top, node)
        else:
            together(writer, node, f"{name}_share", shares.count, shares.along)
