"""row_combine: the small second kernel of a rowwise stage: shares of split rows, or a total over all rows."""

from __future__ import annotations

from mtmc.rewrite.families.pointwise import Variables, write_maps
from mtmc.rewrite.families.row_kernel import IDENTITY, RowKernel
from mtmc.rewrite.families.writer import Writer
from mtmc.rewrite.space import Group


def combine_split(kernel: RowKernel) -> Writer:
    """Puts the shares of split rows together and does what is left to do for each row."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_combine_kernel")
    layout = kernel.layout
    rows = writer.preset(layout.rows, "n_rows")
    writer.line("rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]")
    writer.line(f"row_mask = rows < {rows}")
    writer.line("shares = tl.arange(0, SPLIT)[None, :]")
    variables: Variables = {}
    for node in kernel.reductions:
        neutral = IDENTITY[node.operation]
        address = f"{node.name}_parts + rows * SPLIT + shares"
        writer.line(f"{node.name}_share = tl.load({address}, mask=row_mask, other={neutral})")
        writer.line(f"{node.name} = tl.{node.operation}({node.name}_share, axis=1, keep_dims=True)")
        variables[node.name] = node.name
    groups: tuple[Group, ...] = (Group("rows", layout.rows, "row_mask"),)
    names = [node.name for node in kernel.body.nodes if kernel.place(node) == "row" and node.kind != "reduce"]
    write_maps(writer, names, groups, variables)
    for value in kernel.body.stores:
        writer.store(value, variables[value], "rows", "row_mask")
    return writer


def combine_totals(kernel: RowKernel) -> Writer:
    """Adds up what each program of the first kernel found, over all rows."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_total_kernel")
    variables: Variables = {}
    writer.line("parts = tl.arange(0, BLOCK)")
    reductions = [node for node in kernel.totals if node.kind == "reduce"]
    for node in reductions:
        writer.line(f"{node.name}_acc = tl.zeros([BLOCK], tl.float32)")
    writer.line("for start in range(0, n_parts, BLOCK):")
    for node in reductions:
        address = f"{node.name}_parts + start + parts, mask=start + parts < n_parts, other=0.0"
        writer.line(f"    {node.name}_acc += tl.load({address})")
    for node in reductions:
        writer.line(f"{node.name} = tl.sum({node.name}_acc)")
        variables[node.name] = node.name
    write_maps(writer, [node.name for node in kernel.totals if node.kind != "reduce"], (), variables)
    for value in kernel.body.stores:
        if kernel.layout.place[value] == "total":
            writer.store(value, variables[value], "", "")
    return writer
