"""order: the elements of rows in their order, or the first few of them, with elementwise work before and after.

Three ways, as "method" says. "registers": a program sorts packs of its rows (see `order_keys`) in registers. "stream": it
goes over long rows a block at a time and keeps the first few; a block without anything that belongs to them is left at
once. "count": a program has some elements of one row and counts those that come before each, which is the place where it
stores them: as many comparisons as the square of the row's length, but by many programs, and of numbers of any width.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Varying, is_one, power_of_two_above, product
from mtmc.rewrite.operators.typed import BITS
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.templates.order_kernel import OrderKernel, ordered
from mtmc.rewrite.templates.shares import ENOUGH_PROGRAMS
from mtmc.rewrite.templates.writer import kernel_text

MAX_SORTED = {True: 1024, False: 512}
"""Elements of a row up to which a program sorts it, by whether they are neighbours in memory: on an H100 torch is faster
with longer ones, and their kernels take minutes to compile."""
MAX_CHOSEN_FROM = 2048
"""Elements of a row of which the first few are found at once."""
MAX_KEPT = 512
"""The first few of a longer row that a program can keep."""
MAX_COUNTED, MAX_COMPARISONS = 4096, 2**27
"""Elements of a row up to which they are counted, and comparisons of all rows: some 50 us of an H100."""
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
        """In registers where rows are short. Raises: NotCovered where they are too long for all ways."""
        node, shape, dtype = ordered(graph, body)
        dim = node.dims[0]
        columns, kept = max(shape[dim]), max(node.shape[dim])
        rows = product((*shape[:dim], *shape[dim + 1 :])) or (1,)
        return _method(dtype, rows[0], columns, kept, is_one(product(shape[dim + 1 :])))

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work around the order of one operand."""
        return _print(graph, body, stage, name)


def _method(dtype: str, rows: int, columns: int, kept: int, together: bool) -> dict[str, int | str]:
    """By what was measured on an H100. together: whether the elements of a row are neighbours in memory.

    Raises: NotCovered where torch's own are faster.
    """
    narrow, few, block = BITS.get(dtype, 32) <= 32, kept < columns, power_of_two_above(max(2, columns))
    if narrow and columns <= (MAX_CHOSEN_FROM if few else MAX_SORTED[together]):
        at_once = min(32, max(1, (512 if together else 2048) // block))
        warps = max(1, min(4, block // 512 if few else 1)) if at_once == 1 else max(2, at_once * block // 512)
        return {"method": "registers", "block_rows": at_once, "block_cols": 0, "num_warps": warps}
    if narrow and few and kept <= MAX_KEPT and rows >= ENOUGH_PROGRAMS:
        block, warps = (512, 1) if kept <= 64 else (2048, 4)
        return {
            "method": "stream",
            "block_rows": 1,
            "block_cols": max(block, power_of_two_above(kept)),
            "num_warps": warps,
        }
    if columns <= MAX_COUNTED and rows * columns**2 <= MAX_COMPARISONS:
        return {"method": "count", "block_rows": 1, "block_cols": 64, "num_warps": 4}
    raise NotCovered(f"{rows} rows of {columns} elements in order, which torch is faster with")


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
