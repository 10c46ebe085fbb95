"""scan: running sums, products and the like along one dimension, forwards or backwards, with elementwise work around them
and reductions of their rows.

See `scan_kernel`. With "split" > 1 so many programs share the columns of each row. "eviction_policy": see `eviction`.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Varying, is_one, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.eviction import policy_of
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
from mtmc.rewrite.templates.scan_body import levels_of, reductions_of, scanned, scans_of
from mtmc.rewrite.templates.scan_kernel import Kernel, totals_of
from mtmc.rewrite.templates.shares import ENOUGH_PROGRAMS, shares
from mtmc.rewrite.templates.writer import kernel_text

MANY_PROGRAMS, MOST_SPLIT, LEAST_BLOCKS = 4 * ENOUGH_PROGRAMS, 64, 2
"""Where rows are shared by default: programs of all rows, those that share one, and blocks of columns that each has then."""


class Scan:
    """Scans along one dimension with elementwise work before, between and after them, and reductions along it."""

    name = "scan"

    def matches(self, body: Body) -> bool:
        """Has a scan."""
        return any(node.kind == "scan" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """2048 elements at a time (512 where more than a sum or product is kept of each), of one row or, where rows are
        interleaved, of 32; columns shared where rows are few."""
        rows, columns = _blocks(body)
        settings: dict[str, int | str] = {"block_rows": rows, "block_cols": columns, "num_warps": 4, "split": 1}
        if not reductions_of(body):
            settings["split"] = _shares(*scanned(body), rows, columns)
        return settings

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """The kernels, one where no programs share a row. Raises: NotCovered where there is more around them."""
        if reductions_of(body) and _shares(*scanned(body), *_blocks(body)) > 1:
            raise NotCovered("reductions of few long rows, whose scans programs had better share")
        split = int(dict(stage.schedule).get("split", 1))
        before = range(max(levels_of(body).values()) + 1) if split > 1 else ()
        kernels = [Kernel(graph, body, name, split, level) for level in (*before, None)]
        scope, spare = scope_of(graph, body), dict[str, Varying]()
        kernels[-1].writer.policy = policy_of(stage)
        for kernel in kernels:
            kernel.write()
        rows = size_expression(kernels[0].rows, "n_rows", scope, spare)
        cols = size_expression(kernels[0].cols, "n_cols", scope, spare)
        block_rows = stage.number("block_rows")
        constants = [
            ("WIDE", f"{rows} * {cols} >= 2**31"),
            ("BLOCK_ROWS", str(block_rows)),
            ("BLOCK_COLS", str(stage.number("block_cols"))),
        ]
        grid = [f"triton.cdiv({rows}, {block_rows})" if block_rows > 1 else rows]
        lines = list(dict.fromkeys(line for kernel in kernels for line in contiguous_lines(kernel.writer)))
        lines += [allocation(graph, body, value, scope, spare) for value in body.stores]
        if split > 1:
            constants.append(("SPLIT", str(split)))
            grid.append(str(split))
            lines += [_workspace(kernels[-1], body, totals, rows, split) for totals in kernels[-1].totals]
        texts = kernels[0].rules()
        for kernel in kernels:
            what = "what each program's columns come to" if kernel.found else ", ".join(stage.ops)
            doc = f"{what}: BLOCK_ROWS rows a program, BLOCK_COLS columns at a time."
            texts.append(kernel_text(kernel.writer, kernel.stores, kernel.totals, [key for key, _ in constants], doc))
            launch = Launch(
                kernel.writer.name,
                kernel.writer,
                kernel.stores,
                tuple(kernel.totals),
                tuple(grid),
                tuple(constants),
                stage.number("num_warps"),
            )
            lines += launch_lines(launch, scope, spare)
        return printed(body, name, texts, lines, spare)


def _blocks(body: Body) -> tuple[int, int]:
    """Rows of a program, and columns at a time, by default."""
    shape, dim = scanned(body)
    inner = 1 if is_one(product(shape[dim + 1 :])) else 32
    scans = scans_of(body)
    heavy = len(scans) > 1 or any(scan.operation == "logcumsumexp" for scan in scans)
    columns = max(16, min((512 if heavy else 2048) // inner, 1 << (max(shape[dim]) - 1).bit_length()))
    return max(inner, min(16, 1024 // columns)), columns


def _shares(shape: Shape, dim: int, rows: int, columns: int) -> int:
    """Programs that share the columns of a row by default, where each has so many rows, and so many columns at a time."""
    programs, blocks = -(-product(shape)[0] // shape[dim][0] // rows), -(-shape[dim][0] // columns)
    if programs >= ENOUGH_PROGRAMS:  # columns are read once more however many share them, so more do than must
        return 1
    return shares(programs, 2, lambda count: count <= MOST_SPLIT and blocks // count >= LEAST_BLOCKS, MANY_PROGRAMS)


def _workspace(kernel: Kernel, body: Body, totals: str, rows: str, split: int) -> str:
    """The line that allocates a workspace."""
    whole = any(totals_of(scan) == totals and scan.compute == "int" for scan in kernel.scans)
    dtype = "torch.int64" if whole else "torch.float32"
    return f"{INDENT}{totals} = torch.empty(({rows}, {split}), device={body.loads[0]}.device, dtype={dtype})"
