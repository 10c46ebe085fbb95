"""order: the elements of rows in their order, or the first few of them, with elementwise work before and after.

Three ways, as "method" says. "registers": a program sorts packs of its rows (see `order_keys`) in registers. "stream": it
goes over long rows a block at a time and keeps the first few. "count": a program has some elements of one row and counts
those that come before each, which is the place where it stores them: as many comparisons as the square of the row's
length, but by as many programs as there are blocks, and of numbers of any width.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Varying, is_one, power_of_two_above, product
from mtmc.rewrite.operators.typed import BITS
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.order_kernel import OrderKernel, ordered
from mtmc.rewrite.templates.writer import (
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    kernel_text,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)

MAX_REGISTER_COLUMNS = 2048
"""Elements of a row up to which a program sorts it: each has a 64-bit pack, and is exchanged some 60 times."""
MAX_KEPT = 512
"""The first few of a longer row that a program can keep."""
MAX_COUNTED = 16384
"""Elements of a row up to which they are counted: 2**28 comparisons."""
_DOCS = {
    "registers": "BLOCK_ROWS rows a program, sorted in registers.",
    "stream": "BLOCK_ROWS rows a program, BLOCK_COLS columns at a time, of which the first few are kept.",
    "count": "BLOCK_COLS elements of a row a program; the place of each is how many come before it.",
}


class Order:
    """Sorted rows, and the first few of them."""

    name = "order"

    def matches(self, body: Body) -> bool:
        """Has elements in order."""
        return any(node.kind == "order" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """In registers where rows fit. Raises: NotCovered where rows are too long for all ways."""
        node, shape, dtype = ordered(graph, body)
        columns, kept = max(shape[node.dims[0]]), max(node.shape[node.dims[0]])
        return {**_method(dtype, columns, kept, is_one(product(shape[node.dims[0] + 1 :])))}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work around the order of one operand."""
        return _print(graph, body, stage, name)


def _method(dtype: str, columns: int, kept: int, together: bool) -> dict[str, int | str]:
    """together: whether the elements of a row are neighbours in memory."""
    wide = BITS.get(dtype, 32) > 32
    if not wide and columns <= MAX_REGISTER_COLUMNS:
        block = power_of_two_above(max(2, columns))
        rows = max(1, (1024 if together else 2048) // block)
        return {
            "method": "registers",
            "block_rows": min(rows, 32),
            "block_cols": 0,
            "num_warps": 4 if block < 2048 else 8,
        }
    if not wide and kept < columns and kept <= MAX_KEPT:
        block = max(1024, power_of_two_above(kept))
        return {"method": "stream", "block_rows": 1, "block_cols": block, "num_warps": 4}
    if columns <= MAX_COUNTED:
        return {"method": "count", "block_rows": 1, "block_cols": 64, "num_warps": 4}
    raise NotCovered(f"rows of {columns} elements in order take more than one pass over memory")


def _print(graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
    kernel = OrderKernel(graph, body, stage, name)
    kernel.write()
    scope, spare = scope_of(graph, body), dict[str, Varying]()
    rows = size_expression(kernel.rows, "n_rows", scope, spare)
    cols = size_expression(kernel.cols, "n_cols", scope, spare)
    kept = size_expression(kernel.kept, "n_kept", scope, spare)
    method, block, together = stage.setting("method"), stage.number("block_cols"), stage.number("block_rows")
    constants = [
        (
            "WIDE",
            kernel.writer.wide(f"{rows} * {cols}", product(tuple(size for size in (kernel.rows, kernel.cols) if size))),
        )
    ]
    grid: tuple[str, ...] = (f"triton.cdiv({rows}, {together})" if together > 1 else rows,)
    if method == "count":
        constants += [("BLOCK_COLS", str(block))]
        grid = (rows, f"triton.cdiv({cols}, {block})")
    else:
        constants += [("BLOCK_ROWS", str(together))]
        constants += [("BLOCK_COLS", str(block) if block else f"max(2, triton.next_power_of_2({cols}))")]
        if kernel.shortened or method == "stream":
            constants += [("KEPT", f"max(2, triton.next_power_of_2({kept}))")]
    text = kernel_text(
        kernel.writer, body.stores, (), [key for key, _ in constants], f"{', '.join(stage.ops)}: {_DOCS[str(method)]}"
    )
    lines = contiguous_lines(kernel.writer)
    lines += [allocation(graph, body, value, scope, spare) for value in body.stores]
    warps = stage.number("num_warps")
    lines += launch_lines(
        Launch(f"{name}_kernel", kernel.writer, body.stores, (), grid, tuple(constants), warps), scope, spare
    )
    return printed(body, name, [text], lines, spare)
