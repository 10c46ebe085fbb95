"""attention: softmax(queries @ keys) @ values in one kernel that never writes the scores (see attention_kernel.py).

Elementwise work on the scores (scale, masks) and on the result is done on the tiles. Fewer heads of keys and values than
of queries are shared by neighbouring heads. Keys and values may be several tensors one behind the other. Heads wider
than MAX_WIDTH are taken in slices, with two more settings: block_k (of queries and keys) and block_v (of values).
"""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Varying, power_of_two_above, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_shares as shares
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates import gluon_attention
from mtmc.rewrite.templates.attention_kernel import Kernel
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.launcher import (
    OPTIONS,
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.templates.product_tiles import SPECIAL
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.shares import shares as programs_sharing
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct, analyse, is_softmax_product
from mtmc.rewrite.templates.writer import kernel_text

FEW_ROWS = 16
"""Of the tensor cores' smallest tile."""
MAX_SPLIT, LEAST_KEYS = 64, 256
"""Programs that share keys by default, and least keys of each: fewer are not worth the second kernel."""


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
            settings |= _few_queries(graph, found)
        if found.wide:
            settings |= {"block_n": 64, "block_k": 32, "block_v": 256, "num_stages": 3, "num_warps": 8}
        return settings

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where the body is more than attention with elementwise work."""
        if is_gluon(stage):
            return gluon_attention.emit(graph, body, stage, name)
        return _Assembler(graph, body, stage, name).emit()


def _few_queries(graph: Graph, found: SoftmaxProduct) -> dict[str, int | str]:
    """Settings for fewer queries than the tensor cores' tiles have rows: heads that share keys packed, keys shared."""
    packed = shares.can_pack(graph, found)
    heads, rows = product(found.batch)[0], found.rows[0]
    if packed:
        each = found.batch[1][0] // graph.values[found.regions[0].key].shape[1][0]
        heads, rows = heads // each, rows * each
    if found.rows[0] > FEW_ROWS or rows > 4 * FEW_ROWS or len(found.regions) > 1 or found.causal:
        return {}
    split = programs_sharing(heads, 2, lambda count: count <= MAX_SPLIT and found.columns[0] // count >= LEAST_KEYS)
    block = max(FEW_ROWS, power_of_two_above(rows))
    return {"block_m": block, "packed": int(packed), "split_keys": split, "block_n": 64}


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
            if kernel.specialized:
                constants = (*constants, ("SPECIAL", SPECIAL.format(found.query)))
            tables = tiles.TABLES if kernel.way == tiles.BY_LAUNCHER else ()
        doc = f"{', '.join(stage.ops)}: BLOCK_M rows of one head a program, the scores are never written."
        if kernel.packed:
            doc = f"{', '.join(stage.ops)}: BLOCK_M rows of heads that share keys a program, the scores are never written."
        heads = size_expression(product(found.batch), "n_batch", self.scope, self.spare)
        grid = (self._blocks(), heads)
        split = kernel.split > 1
        extra, stores = (shares.SHARES, ()) if split else (tables, body.stores)
        if split:
            lines += self._workspaces(heads)
        texts = [kernel_text(kernel.writer, stores, extra, [key for key, _ in constants], doc)]
        launch = Launch(
            f"{self.name}_kernel",
            kernel.writer,
            stores,
            extra,
            (*(grid[::-1] if crowded(found.batch) else grid), *([str(kernel.split)] if split else [])),
            constants,
            stage.number("num_warps"),
            stage.number("num_stages"),
            options=tuple((key, int(value)) for key, value in stage.schedule if key in OPTIONS and value),
        )
        lines += launch_lines(launch, self.scope, self.spare)
        if split:
            texts.append(self._second(lines, heads))
        return printed(body, self.name, texts, lines, self.spare)

    def _workspaces(self, heads: str) -> list[str]:
        """Lines that allocate what programs that share keys write."""
        like = f"device={self.body.loads[0]}.device, dtype=torch.float32"
        size = f"{self.kernel.split}, {heads}, {self._rows()}"
        shapes = (f"({size}, {self._extent(self.kernel.found.regions[0].value, -1)})", f"({size})", f"({size})")
        return [
            f"{INDENT}{share} = torch.empty({shape}, {like})"
            for share, shape in zip(shares.SHARES, shapes, strict=True)
        ]

    def _second(self, lines: list[str], heads: str) -> str:
        """Print the second kernel and add its launch to the launcher's lines."""
        kernel, stores = self.kernel, self.body.stores
        writer = shares.combine(kernel, self.name)
        width = self._extent(kernel.found.regions[0].value, -1)
        constants = (
            ("WIDE", "parts.numel() >= 2**31"),
            ("OUT_WIDTH", width),
            ("BLOCK_V", f"max(16, triton.next_power_of_2({width}))"),
            ("SPLIT", str(kernel.split)),
        )
        doc = "Put together what the programs found that shared the keys."
        text = kernel_text(writer, stores, shares.SHARES, [key for key, _ in constants], doc)
        grid = (f"{heads} * {self._rows()}",)
        lines += launch_lines(
            Launch(writer.name, writer, stores, shares.SHARES, grid, constants, 4), self.scope, self.spare
        )
        return text

    def _rows(self) -> str:
        """How many rows a head of keys has."""
        found = self.kernel.found
        rows = size_expression(found.rows, "n_rows", self.scope, self.spare)
        heads = [self._extent(value, 1) for value in (found.query, found.regions[0].key)] if self.kernel.packed else []
        return f"({' // '.join(heads)} * {rows})" if heads else rows

    def _extent(self, value: str, axis: int) -> str:
        """The size of queries, keys or values along an axis."""
        if value not in self.kernel.found.made:
            return f"{value}.shape[{axis}]"
        size = self.graph.values[value].shape[axis]
        return size_expression(size, f"{value}_size_{axis % 4}", self.scope, self.spare)

    def _constants(self) -> tuple[tuple[str, str], ...]:
        """Compile-time arguments; the width of a head among them, which is that of tiles and of what a program unrolls."""
        stage, found = self.stage, self.kernel.found
        width, out_width = self._extent(found.query, -1), self._extent(found.regions[0].value, -1)
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
        blocks = f"triton.cdiv({self._rows()}, {stage.number('block_m')})"
        if not found.wide:
            return blocks
        return f"{blocks} * triton.cdiv({self._extent(found.regions[0].value, -1)}, {stage.number('block_v')})"
