"""scan: running sums and products along one dimension, forwards or backwards, with elementwise work around them.

A program has some rows and loops over their columns, a block at a time; what the blocks before have summed (or multiplied)
up to is carried along. A scan between two flips is one that loops from the last column to the first.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, is_one, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group, bare, flat
from mtmc.rewrite.templates.pointwise import Variables, load_once, write_maps
from mtmc.rewrite.templates.writer import (
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

_STEPS = {
    "cumsum": ("0.0", "{carry} + tl.cumsum({value}, axis=1)", "{carry} + tl.sum({value}, axis=1, keep_dims=True)"),
    "cumprod": ("1.0", "{carry} * tl.cumprod({value}, axis=1)", "{result}"),
}
"""What a scan starts from and what stands outside the bounds; a block's results."""


class Scan:
    """One scan with elementwise work before and after it."""

    name = "scan"

    def matches(self, body: Body) -> bool:
        """Has a scan."""
        return any(node.kind == "scan" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """2048 elements at a time, of one row or, where rows are interleaved, of 32."""
        shape, dim = _scanned(body)
        inner = 1 if is_one(product(shape[dim + 1 :])) else 32
        columns = max(16, min(2048 // inner, 1 << (max(shape[dim]) - 1).bit_length()))
        return {"block_rows": max(inner, min(16, 1024 // columns)), "block_cols": columns, "num_warps": 4}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work around one scan."""
        return _print(graph, body, stage, name)


def _scanned(body: Body) -> tuple[Shape, int]:
    """Shape and dimension of the one scan. Raises: NotCovered."""
    scans = [node for node in body.nodes if node.kind == "scan"]
    if len(scans) != 1 or len(scans[0].dims) != 1:
        raise NotCovered("more or less than one scan along one dimension")
    if any(node.kind not in ("scan", "map") and not is_flip(node) for node in body.nodes):
        raise NotCovered("a scan with more than elementwise work around it")
    dim = scans[0].dims[0]
    if any((is_flip(node) and node.dims != (dim,)) or node.shape != scans[0].shape for node in body.nodes):
        raise NotCovered("work of another shape around a scan, or a flip of another dimension")
    return scans[0].shape, dim


def is_flip(node: Node) -> bool:
    """Whether a node is the elements of another in reverse order."""
    return node.kind == "index" and node.operation == "flip"


class _Kernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, name: str) -> None:
        self.graph, self.body = graph, body
        self.shape, dim = _scanned(body)
        self.outer, self.cols, self.inner = product(self.shape[:dim]), self.shape[dim], product(self.shape[dim + 1 :])
        self.writer = Writer(graph, body, f"{name}_kernel")
        self.scan = next(node for node in body.nodes if node.kind == "scan")
        self.flipped = self._directions()

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return product(tuple(size for size in (self.outer, self.inner) if size))

    def _directions(self) -> dict[str, bool]:
        """Which nodes and loads count their columns from the end, so that the scan itself goes from first to last."""
        flipped = {self.scan.name: False, self.scan.reads()[0]: False}
        before = [node for node in self.body.nodes if self._leads_to_scan(node.name)]
        for node in reversed(before):
            for read in node.reads():
                self._flip(flipped, read, flipped[node.name] != is_flip(node))
        for node in self.body.nodes:
            if node in before or node is self.scan:
                continue
            ways = {flipped[read] for read in node.reads() if read in flipped and self.body.node(read) is not None}
            if len(ways) > 1:
                raise NotCovered("work on columns in both directions")
            flipped[node.name] = (ways.pop() if ways else False) != is_flip(node)
        return flipped

    def _flip(self, flipped: dict[str, bool], read: str, way: bool) -> None:
        if self.body.node(read) is not None and flipped.setdefault(read, way) != way:
            raise NotCovered("work on columns in both directions")

    def _leads_to_scan(self, name: str) -> bool:
        needed = set(self.scan.reads())
        for node in reversed(self.body.nodes):
            if node.name in needed:
                needed |= set(node.reads())
        return name in needed

    def write(self) -> None:
        """Write all of it."""
        writer, scan = self.writer, self.scan
        rows, cols = writer.preset(self.rows, "n_rows"), writer.preset(self.cols, "n_cols")
        inner = writer.preset(self.inner, "n_inner")
        neutral, result, total = _STEPS[scan.operation]
        kind, zero = "tl.float32", "0.0"
        if scan.compute == "int":
            neutral, kind, zero = neutral.removesuffix(".0"), "tl.int64", "0"
        writer.line("rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]")
        writer.widen("rows")
        writer.line(f"row_mask = rows < {rows}")
        if not is_one(self.inner):
            writer.line(f"outer = rows // {inner}")
            writer.line(f"inner = rows % {inner}")
        writer.line(f"carry = tl.full([BLOCK_ROWS, 1], {neutral}, {kind})")
        writer.line(f"for start in range(0, {cols}, BLOCK_COLS):")
        writer.level += 1
        writer.line("cols = start + tl.arange(0, BLOCK_COLS)[None, :]")
        writer.line(f"mask = row_mask & (cols < {cols})")
        if any(is_flip(node) for node in self.body.nodes):
            writer.line(f"from_end = {cols} - 1 - cols")
        variables: Variables = {}
        before = [node for node in self.body.nodes if self._leads_to_scan(node.name)]
        self._maps(before, variables)
        value = self._read(scan, scan.reads()[0], variables)
        writer.line(f"{scan.name}_each = tl.where(mask, {value}, {neutral})")
        names = {"carry": "carry", "value": f"{scan.name}_each"}
        writer.line(f"{scan.name} = {result.format(**names)}")
        if scan.operation == "cumsum":
            writer.line(f"carry = {total.format(**names)}")
        else:
            last = f"tl.where(tl.arange(0, BLOCK_COLS)[None, :] == BLOCK_COLS - 1, {scan.name}, {zero})"
            writer.line(f"carry = tl.sum({last}, axis=1, keep_dims=True)  # the last column's")
        variables[scan.name] = scan.name
        self._maps([node for node in self.body.nodes if node not in before and node is not scan], variables)
        for value in self.body.stores:
            node = self.body.node(value)
            assert node is not None
            writer.store(
                value, variables[value], bare(flat(self._groups(self.flipped[value]), writer.size).index), "mask"
            )
        writer.level = 1

    def _groups(self, flipped: bool) -> tuple[Group, ...]:
        """The iteration space, counted from the first column or from the last."""
        columns = Group("from_end" if flipped else "cols", self.cols, "mask")
        if is_one(self.inner):
            return (Group("rows", self.outer, "mask"), columns)
        return (Group("outer", self.outer, "mask"), columns, Group("inner", self.inner, "mask"))

    def _maps(self, nodes: list[Node], variables: Variables) -> None:
        """Elementwise work; a flip is the same element, which stands at another column."""
        for node in nodes:
            if is_flip(node):
                variables[node.name] = self._read(node, node.reads()[0], variables)
            else:
                write_maps(self.writer, [node.name], self._groups(self.flipped[node.name]), variables)

    def _read(self, node: Node, read: str, variables: Variables) -> str:
        if read in variables:
            return variables[read]
        groups = self._groups(self.flipped[node.name] != is_flip(node))
        return load_once(self.writer, read, self.shape, groups, variables)


def _print(graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
    kernel = _Kernel(graph, body, name)
    kernel.write()
    scope, spare = scope_of(graph, body), dict[str, Varying]()
    rows = size_expression(kernel.rows, "n_rows", scope, spare)
    cols = size_expression(kernel.cols, "n_cols", scope, spare)
    block_rows = stage.number("block_rows")
    constants = (
        ("WIDE", f"{rows} * {cols} >= 2**31"),
        ("BLOCK_ROWS", str(block_rows)),
        ("BLOCK_COLS", str(stage.number("block_cols"))),
    )
    doc = f"{', '.join(stage.ops)}: BLOCK_ROWS rows a program, BLOCK_COLS columns at a time."
    text = kernel_text(kernel.writer, body.stores, (), [key for key, _ in constants], doc)
    lines = contiguous_lines(kernel.writer)
    lines += [allocation(graph, body, value, scope, spare) for value in body.stores]
    grid = (f"triton.cdiv({rows}, {block_rows})" if block_rows > 1 else rows,)
    launch = Launch(f"{name}_kernel", kernel.writer, body.stores, (), grid, constants, stage.number("num_warps"))
    lines += launch_lines(launch, scope, spare)
    return printed(body, name, [text], lines, spare)
