"""attention: softmax(queries @ keys) @ values in one kernel that never writes the scores (see attention_kernel.py).

Elementwise work on the scores (scale, masks) and on the result is done on the tiles. Fewer heads of keys and values than
of queries are shared by neighbouring heads. Keys and values may be several tensors one behind the other. Heads wider
than MAX_WIDTH are taken in slices, with two more settings: block_k (of queries and keys) and block_v (of values).
"""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, Varying, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_kernel import Kernel
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.softmax_product import analyse, is_softmax_product
from mtmc.rewrite.templates.writer import (
    INDENT,
    OPTIONS,
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


class Attention:
    """Two products with a softmax between them."""

    name = "attention"

    def matches(self, body: Body) -> bool:
        """Has two products and exponentials."""
        return is_softmax_product(body)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """64 queries a program, 64 keys at a time (32 for heads above 64), plain fp32 products."""
        found = analyse(graph, body)
        wide = max((*found.width, *found.out_width)) > 64
        settings: dict[str, int | str] = {
            "block_m": 64,
            "block_n": 32 if wide else 64,
            "num_stages": 2,
            "num_warps": 4,
            "precision": "ieee" if graph.values[found.query].dtype == "float32" else "input",
        }
        if not found.wide:
            settings |= {"masks": "edges", **({"order": "heavy"} if found.causal else {})}
        if found.wide:
            settings |= {"block_n": 64, "block_k": 32, "block_v": 256, "num_stages": 3, "num_warps": 8}
        return settings

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where the body is more than attention with elementwise work."""
        return _Assembler(graph, body, stage, name).emit()


class _Assembler:
    """Prints one attention stage: kernel and launcher."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.kernel = Kernel(graph, body, stage, name)
        self.kernel.write()
        self.scope, self.spare = scope_of(graph, body), dict[str, Varying]()

    def emit(self) -> Printed:
        """The kernel and its launcher."""
        body, stage, kernel, found = self.body, self.stage, self.kernel, self.kernel.found
        lines = contiguous_lines(kernel.writer)
        lines += [allocation(self.graph, body, value, self.scope, self.spare) for value in body.stores]
        constants = self._constants()
        if kernel.even:
            constants = (*constants, ("EVEN", self._even()))
        tables: tuple[str, ...] = ()
        if kernel.described:
            blocks = [value for name, value in constants if name in ("BLOCK_K", "BLOCK_V")]
            lines += [INDENT + line for line in tiles.launcher_lines(found, stage, body.stores[0], *blocks)]
            constants = (*constants, ("DESCRIBED", "described"))
            tables = tiles.TABLES if kernel.way == tiles.BY_LAUNCHER else ()
        doc = f"{', '.join(stage.ops)}: BLOCK_M rows of one head a program, the scores are never written."
        grid = (self._blocks(), size_expression(product(found.batch), "n_batch", self.scope, self.spare))
        text = kernel_text(kernel.writer, body.stores, tables, [key for key, _ in constants], doc)
        launch = Launch(
            f"{self.name}_kernel",
            kernel.writer,
            body.stores,
            tables,
            grid[::-1] if crowded(found.batch) else grid,
            constants,
            stage.number("num_warps"),
            stage.number("num_stages"),
            options=tuple((key, int(value)) for key, value in stage.schedule if key in OPTIONS and value),
        )
        lines += launch_lines(launch, self.scope, self.spare)
        return printed(body, self.name, [text], lines, self.spare)

    def _constants(self) -> tuple[tuple[str, str], ...]:
        stage, found = self.stage, self.kernel.found
        width, out_width = f"{found.query}.shape[-1]", f"{found.regions[0].value}.shape[-1]"
        inner, outer = (f"max(16, triton.next_power_of_2({size}))" for size in (width, out_width))
        if found.wide:
            inner, outer = f"min({stage.number('block_k')}, {inner})", f"min({stage.number('block_v')}, {outer})"
        sizes = ", ".join(f"{value}.numel()" for value in (*self.body.loads, *self.body.stores))
        return (
            ("WIDE", f"max({sizes}) >= 2**31"),
            ("WIDTH", width),
            ("OUT_WIDTH", out_width),
            ("BLOCK_M", str(stage.number("block_m"))),
            ("BLOCK_N", str(stage.number("block_n"))),
            ("BLOCK_K", inner),
            ("BLOCK_V", outer),
        )

    def _even(self) -> str:
        """Whether no column needs a mask of its own, see `Kernel.even`."""
        found, block = self.kernel.found, self.stage.number("block_n")
        columns = [size_expression(region.columns, "n_cols", self.scope, self.spare) for region in found.regions]
        if found.causal:
            rows = size_expression(found.rows, "n_rows", self.scope, self.spare)
            return f"{rows} <= {columns[0]}" if len(columns) == 1 else "False"
        return " and ".join(f"({size}) % {block} == 0" for size in columns)

    def _blocks(self) -> str:
        """How many programs one head has."""
        found, stage = self.kernel.found, self.stage
        rows = size_expression(found.rows, "n_rows", self.scope, self.spare)
        blocks = f"triton.cdiv({rows}, {stage.number('block_m')})"
        parts = f"triton.cdiv({found.regions[0].value}.shape[-1], {stage.number('block_v')})" if found.wide else ""
        return f"{blocks} * {parts}" if parts else blocks
