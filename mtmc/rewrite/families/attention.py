"""attention: softmax(queries @ keys) @ values in one kernel that never writes the scores (online softmax).

A program has BLOCK_M rows (queries) of one head and walks over the columns (keys), BLOCK_N at a time. It keeps each row's
largest score so far, the sum of exponentials, and the weighted sum of values, and scales the last two down whenever a
larger score appears (Milakov and Gimelshein 2018; Dao et al. 2022). Elementwise work on the scores (scale, masks) and on
the result is done on the tiles. Fewer heads of keys and values than of queries are shared by neighbouring heads.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.families.pointwise import Variables, write_maps
from mtmc.rewrite.families.softmax_product import SoftmaxProduct, analyse, is_softmax_product
from mtmc.rewrite.families.writer import (
    Launch,
    Printed,
    Writer,
    allocation,
    contiguous_lines,
    kernel_text,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.graph import Graph, Size, Varying, is_one, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group

_LOCALS: Variables = {
    ("local", name): name
    for name in ("q", "k", "v", "queries", "keys", "values", "top", "total", "weights", "scale", "shift", "logits")
}
"""The kernel's own variables: what is loaded for work on the tiles gets other names."""


class Attention:
    """Two products with a softmax between them."""

    name = "attention"

    def takes(self, body: Body) -> bool:
        """Has two products and exponentials."""
        return is_softmax_product(body)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """64 queries a program, 64 keys at a time (32 for wide heads), plain fp32 products."""
        found = analyse(graph, body)
        wide = max((*found.width, *found.out_width)) > 64
        return {
            "block_m": 64,
            "block_n": 32 if wide else 64,
            "num_stages": 2,
            "num_warps": 4,
            "precision": "ieee" if graph.values[found.query].dtype == "float32" else "input",
        }

    def print(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where the body is more than attention with elementwise work."""
        return _Assembler(graph, body, stage, name).print()


class _Kernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage = graph, body, stage
        self.found: SoftmaxProduct = analyse(graph, body)
        self.writer = Writer(graph, body, f"{name}_kernel")
        precision = stage.setting("precision")
        self.exact = f', input_precision="{precision}"' if precision != "input" else ""

    def write(self) -> None:
        """Write all of it."""
        writer, found = self.writer, self.found
        self.n_rows, self.n_cols = writer.preset(found.rows, "n_rows"), writer.preset(found.columns, "n_cols")
        self._rows()
        self._start()
        last = self.n_cols
        if found.causal:
            writer.comment("columns behind the block's last row are masked for all of its rows")
            writer.line(f"last = tl.minimum({self.n_cols}, (tl.program_id(0) + 1) * BLOCK_M)")
            last = "last"
        writer.line(f"for start in range(0, {last}, BLOCK_N):")
        writer.level += 1
        self._scores()
        self._update()
        writer.level -= 1
        self._result()

    def _rows(self) -> None:
        writer = self.writer
        writer.line("batch = tl.program_id(1)")
        writer.line("if WIDE:  # more elements than a 32-bit offset can reach")
        writer.line("    batch = batch.to(tl.int64)")
        writer.line("rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        writer.line(f"row_mask = rows < {self.n_rows}")
        writer.line("inner = tl.arange(0, BLOCK_K)")
        writer.line("outer = tl.arange(0, BLOCK_V)[None, :]")

    def _start(self) -> None:
        """The queries' tile, and what is kept of the columns seen so far."""
        writer, found = self.writer, self.found
        base, down, across = self._parts(found.query, -2, -1)
        writer.line(f"queries = {base}")
        mask = "row_mask & (inner < WIDTH)[None, :]"
        writer.line(f"q = tl.load(queries + rows{down} + inner[None, :]{across}, mask={mask}, other=0.0)")
        keys, down, across = self._parts(found.key, -2, -1)
        self.key_down, self.key_across = (down, across) if found.transposed else (across, down)
        values, self.value_down, self.value_across = self._parts(found.value, -2, -1)
        writer.line(f"keys = {keys}")
        writer.line(f"values = {values}")
        writer.line('top = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)')
        writer.line("total = tl.zeros([BLOCK_M, 1], tl.float32)")
        writer.line(f"{found.result.name} = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)")

    def _parts(self, value: str, first: int, second: int) -> tuple[str, str, str]:
        """Pointer to a tensor's matrix of this program, and " * stride" along its last two axes."""
        tensor, batch = self.graph.values[value], self.found.batch
        index, base = "batch", self.writer.pointer(value)
        for axis in range(len(batch)):
            below = product(batch[axis + 1 :])
            digit = index if not below or is_one(below) else f"{index} // {self.writer.size(below)}"
            if axis > 0:
                digit = f"{index} % {self.writer.size(batch[axis])}"
            own = tensor.shape[axis]
            if is_one(own):
                continue
            if not same(own, batch[axis]):
                heads = f"{self.found.query}.shape[{axis}] // {value}.shape[{axis}]"
                shared = self.writer.argument(f"{value}_share", heads)
                digit = f"{digit} // {shared}"
            base += f" + {f'({digit})' if ' ' in digit else digit} * {self.writer.stride(value, axis)}"
        rank = len(tensor.shape)
        strides = []
        for axis in (rank + first, rank + second):
            unit = tensor.contiguous and axis == rank - 1
            if unit:
                self.writer.contiguous.add(value)
            strides.append("" if unit else f" * {self.writer.stride(value, axis)}")
        return base, strides[0], strides[1]

    def _scores(self) -> None:
        """The scores of this block of columns, as the softmax takes them."""
        writer, found = self.writer, self.found
        writer.line("columns = start + tl.arange(0, BLOCK_N)")
        writer.line("cols = columns[None, :]")
        writer.line(f"col_mask = cols < {self.n_cols}")
        mask, place = "col_mask & (inner < WIDTH)[:, None]", f"cols{self.key_down} + inner[:, None]{self.key_across}"
        writer.line(f"k = tl.load(keys + {place}, mask={mask}, other=0.0)")
        writer.line(f"{found.scores.name} = tl.dot(q, k{self.exact})")
        variables: Variables = {found.scores.name: found.scores.name, **_LOCALS}
        for node in found.between:
            self._map(node, ("cols", found.columns, "col_mask"), variables)
        logits = variables[found.logits]
        writer.line(f'logits = tl.where(col_mask, {logits}, float("-inf"))')

    def _map(self, node: Node, last: tuple[str, Size, str], variables: Variables) -> None:
        """One elementwise step on a tile; what has no batch is the same for all of it."""
        groups: tuple[Group, ...] = (Group("rows", self.found.rows, "row_mask"), Group(*last))
        if len(node.shape) > 2 and not same(product(node.shape[:-2]), ()):
            groups = (Group("batch", product(self.found.batch), ""), *groups)
        write_maps(self.writer, [node.name], groups, variables)

    def _update(self) -> None:
        writer, found = self.writer, self.found
        cast = "" if self.graph.values[found.value].dtype == "float32" else ".to(v.dtype)"
        writer.line("larger = tl.maximum(top, tl.max(logits, axis=1, keep_dims=True))")
        writer.comment("a row of which all columns are masked so far has no largest score")
        writer.line('shift = tl.where(larger == float("-inf"), 0.0, larger)')
        writer.line("weights = tl.exp(logits - shift)")
        writer.line("scale = tl.exp(top - shift)")
        writer.line("total = total * scale + tl.sum(weights, axis=1, keep_dims=True)")
        mask, place = "there & (outer < OUT_WIDTH)", f"columns[:, None]{self.value_down} + outer{self.value_across}"
        writer.line(f"there = (columns < {self.n_cols})[:, None]")
        writer.line(f"v = tl.load(values + {place}, mask={mask}, other=0.0)")
        name = found.result.name
        writer.line(f"{name} = {name} * scale + tl.dot(weights{cast}, v{self.exact})")
        writer.line("top = larger")

    def _result(self) -> None:
        writer, found = self.writer, self.found
        name = found.result.name
        writer.line(f"{name} = {name} / total")
        variables: Variables = {name: name, **_LOCALS}
        writer.line("out_mask = outer < OUT_WIDTH")
        for node in found.after:
            self._map(node, ("outer", found.out_width, "out_mask"), variables)
        for value in self.body.stores:
            offset = f"(batch * {self.n_rows} + rows) * OUT_WIDTH + outer"
            writer.store(value, variables[value], offset, "row_mask & out_mask")


class _Assembler:
    """Prints one attention stage: kernel and launcher."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.kernel = _Kernel(graph, body, stage, name)
        self.kernel.write()
        self.scope, self.spare = scope_of(graph, body), dict[str, Varying]()

    def print(self) -> Printed:
        """The kernel and its launcher."""
        body, stage, kernel, found = self.body, self.stage, self.kernel, self.kernel.found
        rows = size_expression(found.rows, "n_rows", self.scope, self.spare)
        lines = contiguous_lines(kernel.writer)
        lines += [allocation(self.graph, body, value, self.scope, self.spare) for value in body.stores]
        across = -1 if found.transposed else -2
        tensors = ", ".join(f"{value}.numel()" for value in (found.query, found.key, found.value))
        constants = (
            ("WIDE", f"max({tensors}) >= 2**31"),
            ("WIDTH", f"{found.query}.shape[-1]"),
            ("OUT_WIDTH", f"{found.value}.shape[-1]"),
            ("BLOCK_M", str(stage.number("block_m"))),
            ("BLOCK_N", str(stage.number("block_n"))),
            ("BLOCK_K", f"max(16, triton.next_power_of_2({found.key}.shape[{across}]))"),
            ("BLOCK_V", f"max(16, triton.next_power_of_2({found.value}.shape[-1]))"),
        )
        doc = f"{', '.join(stage.ops)}: BLOCK_M rows of one head a program, the scores are never written."
        text = kernel_text(kernel.writer, body.stores, (), [key for key, _ in constants], doc)
        batch = size_expression(product(found.batch), "n_batch", self.scope, self.spare)
        grid = (f"triton.cdiv({rows}, {stage.number('block_m')})", batch)
        launch = Launch(
            f"{self.name}_kernel",
            kernel.writer,
            body.stores,
            (),
            grid,
            constants,
            stage.number("num_warps"),
            stage.number("num_stages"),
        )
        lines += launch_lines(launch, self.scope, self.spare)
        return printed(body, self.name, [text], lines, self.spare)
