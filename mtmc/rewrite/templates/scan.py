"""scan: running sums, products and the like along one dimension, forwards or backwards, with elementwise work around them.

A program has some rows and loops over their columns, a block at a time; what the blocks before have summed (or multiplied)
up to is carried along. A scan between two flips is one that loops from the last column to the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, is_one, product, same
from mtmc.rewrite.operators.elementwise import LOG1P_EXP
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


@dataclass(frozen=True)
class _Step:
    """A scan, a block at a time. neutral: what it starts from and what stands outside the bounds. result: a block's
    results. total: what is carried on; None for the last column's result. rule: of two parts, where Triton has none."""

    neutral: str
    result: str
    total: str | None = None
    rule: str = ""


_LOG_ADD_EXP = f'''\
@triton.jit
def {{rule}}(a, b):
    """log(exp(a) + exp(b))."""
    apart = tl.where(a == b, 0.0, a - b)  # of two that are infinite, too
    return tl.maximum(a, b) + {LOG1P_EXP.format("apart")}'''
_STEPS = {
    "cumsum": _Step("0.0", "{carry} + tl.cumsum({value}, axis=1)", "{carry} + tl.sum({value}, axis=1, keep_dims=True)"),
    "cumprod": _Step("1.0", "{carry} * tl.cumprod({value}, axis=1)"),
    "logcumsumexp": _Step(
        'float("-inf")', "{rule}({carry}, tl.associative_scan({value}, 1, {rule}))", rule=_LOG_ADD_EXP
    ),
}


class Scan:
    """Scans along one dimension with elementwise work before, between and after them."""

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
        """One kernel. Raises: NotCovered where there is more than elementwise work around scans."""
        return _print(graph, body, stage, name)


def _scanned(body: Body) -> tuple[Shape, int]:
    """Shape and dimension of the scans. Raises: NotCovered."""
    scans = [node for node in body.nodes if node.kind == "scan"]
    if any(node.dims != scans[0].dims or len(node.dims) != 1 for node in scans):
        raise NotCovered("scans along more than one dimension")
    if any(node.kind not in ("scan", "map", "view", "index") for node in body.nodes):
        raise NotCovered("a scan with more than elementwise work around it")
    dim, shape = scans[0].dims[0], scans[0].shape
    if any(scan.shape != shape for scan in scans):
        raise NotCovered("scans of several shapes")
    if any(
        (node := body.node(value)) is None or not same(product(node.shape), product(shape)) for value in body.stores
    ):
        raise NotCovered("results of another shape than that of a scan")
    if any(map(is_flip, body.nodes)) and any(not _fits_a_flip(node, shape, dim) for node in body.nodes):
        raise NotCovered("work of another shape around a scan from the end, or a flip of another dimension")
    return shape, dim


def _fits_a_flip(node: Node, shape: Shape, dim: int) -> bool:
    return node.shape == shape and (node.kind in ("scan", "map") or (is_flip(node) and node.dims == (dim,)))


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
        self.scans = [node for node in body.nodes if node.kind == "scan"]
        self.name = name
        self.flipped = self._directions()

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return product(tuple(size for size in (self.outer, self.inner) if size))

    def _directions(self) -> dict[str, bool]:
        """Which nodes and loads count their columns from the end, so that scans themselves go from first to last."""
        if not any(map(is_flip, self.body.nodes)):
            return dict.fromkeys((node.name for node in self.body.nodes), False)
        flipped = dict.fromkeys((name for scan in self.scans for name in (scan.name, *scan.reads())), False)
        before = [node for node in self.body.nodes if self._leads_to_scan(node.name)]
        for node in reversed(before):
            for read in node.reads():
                self._flip(flipped, read, flipped[node.name] != is_flip(node))
        for node in self.body.nodes:
            if node in before or node in self.scans:
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
        needed = {read for scan in self.scans for read in scan.reads()}
        for node in reversed(self.body.nodes):
            if node.name in needed:
                needed |= set(node.reads())
        return name in needed

    def write(self) -> None:
        """Write all of it."""
        writer = self.writer
        rows, cols = writer.preset(self.rows, "n_rows"), writer.preset(self.cols, "n_cols")
        inner = writer.preset(self.inner, "n_inner")
        writer.line("rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]")
        writer.widen("rows")
        writer.line(f"row_mask = rows < {rows}")
        if not is_one(self.inner):
            writer.line(f"outer = rows // {inner}")
            writer.line(f"inner = rows % {inner}")
        for scan in self.scans:
            kind = "tl.int64" if scan.compute == "int" else "tl.float32"
            writer.line(f"{self.carry(scan)} = tl.full([BLOCK_ROWS, 1], {self.neutral(scan)}, {kind})")
        writer.line(f"for start in range(0, {cols}, BLOCK_COLS):")
        writer.level += 1
        writer.line("cols = start + tl.arange(0, BLOCK_COLS)[None, :]")
        writer.line(f"mask = row_mask & (cols < {cols})")
        if any(is_flip(node) for node in self.body.nodes):
            writer.line(f"from_end = {cols} - 1 - cols")
        variables: Variables = {}
        for node in self.body.nodes:
            if node in self.scans:
                self._scan(node, variables)
            elif same(product(node.shape), product(self.shape)):  # others are worked out where they are needed
                self._map(node, variables)
        for value in self.body.stores:
            writer.store(
                value, variables[value], bare(flat(self._groups(self.flipped[value]), writer.size).index), "mask"
            )
        writer.level = 1

    def carry(self, scan: Node) -> str:
        """The variable with what the blocks before come to."""
        return "carry" if len(self.scans) == 1 else f"{scan.name}_carry"

    def neutral(self, scan: Node) -> str:
        """What a scan starts from."""
        neutral = _STEPS[scan.operation].neutral
        return neutral.removesuffix(".0") if scan.compute == "int" else neutral

    def rules(self) -> list[str]:
        """The functions that put two parts of a scan together."""
        operations = dict.fromkeys(scan.operation for scan in self.scans)
        found = [_STEPS[operation].rule.replace("{rule}", self._rule(operation)) for operation in operations]
        return [text for text in found if text]

    def _rule(self, operation: str) -> str:
        return f"{self.name}_{operation}"

    def _scan(self, scan: Node, variables: Variables) -> None:
        """A block of a scan, and what is carried on."""
        writer, step = self.writer, _STEPS[scan.operation]
        value = self._read(scan, scan.reads()[0], variables)
        writer.line(f"{scan.name}_each = tl.where(mask, {value}, {self.neutral(scan)})")
        names = {"carry": self.carry(scan), "value": f"{scan.name}_each", "rule": self._rule(scan.operation)}
        writer.line(f"{scan.name} = {step.result.format(**names)}")
        if step.total is not None:
            writer.line(f"{names['carry']} = {step.total.format(**names)}")
        else:
            zero = "0" if scan.compute == "int" else "0.0"
            last = f"tl.where(tl.arange(0, BLOCK_COLS)[None, :] == BLOCK_COLS - 1, {scan.name}, {zero})"
            writer.line(f"{names['carry']} = tl.sum({last}, axis=1, keep_dims=True)  # the last column's")
        variables[scan.name] = scan.name

    def _groups(self, flipped: bool) -> tuple[Group, ...]:
        """The iteration space, counted from the first column or from the last."""
        columns = Group("from_end" if flipped else "cols", self.cols, "mask")
        if is_one(self.inner):
            return (Group("rows", self.outer, "mask"), columns)
        return (Group("outer", self.outer, "mask"), columns, Group("inner", self.inner, "mask"))

    def _map(self, node: Node, variables: Variables) -> None:
        """Elementwise work; a flip is the same element, which stands at another column."""
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
    return printed(body, name, [*kernel.rules(), text], lines, spare)
