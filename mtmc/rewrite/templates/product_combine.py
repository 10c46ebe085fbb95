"""product_combine: the small second kernel of a matmul stage: it puts together what several programs found."""

from __future__ import annotations

from mtmc.rewrite.graph import product
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables
from mtmc.rewrite.templates.product_kernel import ProductKernel, preset_sizes
from mtmc.rewrite.templates.product_programs import INSIDE_TILE
from mtmc.rewrite.templates.product_rows import put_together
from mtmc.rewrite.templates.product_symmetric import fold_lines, mirror, rectangle
from mtmc.rewrite.templates.writer import Writer


def combine_k(kernel: ProductKernel) -> Writer:
    """Adds up the shares of the sum over k and does what comes after the product."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_combine_kernel")
    preset_sizes(writer, kernel.found)
    if kernel.symmetric:
        _half(kernel, writer)
    down, across = ("block_m", "block_n") if kernel.symmetric else ("tl.program_id(0)", "tl.program_id(1)")
    writer.line(f"rows = {down} * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
    writer.line(f"cols = {across} * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
    writer.widen("rows")
    writer.line(f"row_mask = rows < {kernel.n_m}")
    writer.line(f"col_mask = cols < {kernel.n_n}")
    if kernel.found.batch:
        writer.line("batch = tl.program_id(2)")
    dot = kernel.found.dot.name
    writer.line(f"{dot} = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)")
    writer.line("for share in range(0, SPLIT):")
    address = f"shares + share * ({kernel.total()}) + {kernel.offset()}"
    writer.line(f"    {dot} += tl.load({address}, mask=row_mask & col_mask, other=0.0)")
    variables: Variables = {dot: dot}
    kernel.after(kernel.found.after, kernel.groups(), variables, writer)
    kernel.store_wide(writer, variables)
    if kernel.symmetric:
        mirror(kernel, writer, variables, lambda turned: kernel.store_wide(writer, turned), even=False)
    return writer


def _half(kernel: ProductKernel, writer: Writer) -> None:
    """Which tile a program has, of those on and above the diagonal."""
    across = f"tl.cdiv({kernel.n_n}, BLOCK_N)"
    _, wide = rectangle(across)
    writer.line(f"block_m = tl.program_id(0) // ({wide})")
    writer.line(f"block_n = tl.program_id(0) % ({wide})")
    fold_lines(writer, across)


def combine_parts(kernel: ProductKernel) -> Writer:
    """Adds up the parts of each tile that several programs made, in their order, and does what comes after the product."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_combine_kernel")
    preset_sizes(writer, kernel.found)
    n_k = writer.preset(kernel.found.k, "n_k")
    writer.line(f"tiles = {kernel.tiles()}")
    writer.line(f"blocks_k = tl.cdiv({n_k}, BLOCK_K)")
    writer.line("share = tl.cdiv(tiles % PROGRAMS * blocks_k, PROGRAMS)  # slices of each program")
    writer.line("begin = tl.program_id(0) * blocks_k")
    writer.line("first = begin // share")
    writer.line("last = (begin + blocks_k - 1) // share")
    writer.line("if first < last:  # else one program has made the whole tile")
    writer.level += 1
    dot = kernel.found.dot.name
    writer.line(f"{dot} = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)")
    writer.line("for owner in range(first, last + 1):")
    writer.line("    place = owner * 2 + tl.where(owner * share < begin, 1, 0)")
    writer.line(f"    part = shares + place * BLOCK_M * BLOCK_N + {INSIDE_TILE}")
    writer.line(f"    {dot} += tl.load(part)")
    writer.line("program = tiles // PROGRAMS * PROGRAMS + tl.program_id(0)")
    kernel.block_order(writer)
    writer.line("rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
    writer.line("cols = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
    writer.widen("rows")
    writer.line(f"row_mask = rows < {kernel.n_m}")
    writer.line(f"col_mask = cols < {kernel.n_n}")
    variables: Variables = {dot: dot}
    kernel.after(kernel.found.after, kernel.groups(), variables, writer)
    kernel.store_wide(writer, variables)
    return writer


def combine_n(kernel: ProductKernel) -> Writer:
    """Puts together what each program found in its columns, and does what is left to do for each row."""
    writer = Writer(kernel.graph, kernel.body, f"{kernel.name}_combine_kernel")
    every_row = product(tuple(size for size in (*kernel.found.batch, kernel.found.m) if size))
    rows = writer.preset(every_row, "n_rows")
    writer.line("rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]")
    writer.line(f"row_mask = rows < {rows}")
    writer.line("shares = tl.arange(0, SPLIT)[None, :]")
    variables: Variables = {}
    put_together(writer, kernel.rows_work, variables)
    groups = (Group("rows", every_row, "row_mask"),)
    kernel.after(kernel.rows_work.maps, groups, variables, writer)
    for value in kernel.body.stores:
        writer.store_at(value, variables[value], groups, "row_mask")
    return writer
