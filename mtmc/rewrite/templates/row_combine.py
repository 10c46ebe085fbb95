"""row_combine: the second kernel of a rowwise stage: shares of split rows, or a total over all rows."""

from __future__ import annotations

from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import row_parts
from mtmc.rewrite.templates.eviction import policy_of
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.row_extremes import EACH_ROW, ONE_ROW, accumulator
from mtmc.rewrite.templates.row_kernel import RowKernel
from mtmc.rewrite.templates.row_parts import Shares
from mtmc.rewrite.templates.writer import Writer


def combine_split(kernel: RowKernel) -> Writer:
    """Puts the shares of split rows together and does what is left to do for each row."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_combine_kernel")
    layout = kernel.layout
    rows = writer.preset(layout.rows, "n_rows")
    writer.line("rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]")
    writer.line(f"row_mask = rows < {rows}")
    variables = _shares(kernel, writer)
    groups: tuple[Group, ...] = (Group("rows", layout.rows, "row_mask"),)
    write_maps(writer, _row_maps(kernel), groups, variables)
    for value in kernel.body.stores:
        writer.store_at(value, variables[value], groups, "row_mask")
    return writer


def apply_split(kernel: RowKernel) -> Writer:
    """Puts the shares of split rows together and goes over its own share of the columns once more, for full results."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_apply_kernel")
    groups = kernel.head(writer)
    variables = _shares(kernel, writer, ONE_ROW if kernel.stage.number("block_rows") == 1 else EACH_ROW)
    write_maps(writer, _row_maps(kernel), kernel.row_groups(groups), variables)
    of_row = [value for value in kernel.body.stores if kernel.layout.place[value] == "row"]
    if of_row:
        writer.line("if tl.program_id(1) == 0:  # the programs of a row all know it")
        writer.level += 1
        for value in of_row:
            writer.store_at(value, variables[value], (Group("rows", kernel.layout.rows, "row_mask"),), "row_mask")
        writer.level -= 1
    writer.policy = policy_of(kernel.stage)
    names = kernel.slice(kernel.full_stores, variables)
    kernel.before_walk(writer, names, groups, variables)
    kernel.open_loop(writer)
    write_maps(writer, names, groups, variables)
    for node in kernel.full_stores:
        kernel.store_full(writer, node.name, groups, variables)
    kernel.end_walk(writer)
    return writer


def _row_maps(kernel: RowKernel) -> list[str]:
    return [node.name for node in kernel.body.nodes if kernel.place(node) == "row" and node.kind != "reduce"]


def _shares(kernel: RowKernel, writer: Writer, along: str = EACH_ROW) -> Variables:
    """Write how the shares of each reduction are read and put together. along: see `EACH_ROW`."""
    writer.line("shares = tl.arange(0, SPLIT)[None, :]")
    if any(node.operation == "deviations" for node in kernel.reductions):
        kernel.share(writer)
    shares = Shares("row_mask", "chunk", "SPLIT", along)
    row_parts.as_one(writer, kernel.layout, kernel.reductions, shares)
    return {node.name: node.name for node in kernel.reductions}


def combine_totals(kernel: RowKernel) -> Writer:
    """Adds up what each program of the first kernel found, over all rows."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_total_kernel")
    variables: Variables = {}
    reductions = [node for node in kernel.totals if node.kind == "reduce"]
    for node in reductions:
        writer.line(f"{node.name}_acc = tl.zeros([BLOCK], {accumulator(kernel.body, node)[1]})")
    writer.line("for start in range(0, n_parts, BLOCK):")
    writer.line("    parts = start + tl.arange(0, BLOCK)")
    for node in reductions:
        zero, _ = accumulator(kernel.body, node)
        writer.line(f"    {node.name}_acc += tl.load({node.name}_parts + parts, mask=parts < n_parts, other={zero})")
    for node in reductions:
        writer.line(f"{node.name} = tl.sum({node.name}_acc)")
        variables[node.name] = node.name
    write_maps(writer, [node.name for node in kernel.totals if node.kind != "reduce"], (), variables)
    for value in kernel.body.stores:
        if kernel.layout.place[value] == "total":
            writer.store(value, variables[value], "", "")
    return writer
