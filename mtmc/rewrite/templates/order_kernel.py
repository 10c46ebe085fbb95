"""order_kernel: writes the kernel that puts the elements of rows in their order."""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Shape, Size, is_one, product, same
from mtmc.rewrite.operators.typed import BITS
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group, bare, flat
from mtmc.rewrite.templates.order_keys import LAST, check, key, pack, unpack
from mtmc.rewrite.templates.pointwise import Variables, load_once, write_maps
from mtmc.rewrite.templates.writer import Writer

_CHUNK = 256
"""Elements that the ones at hand are compared with at a time."""


def ordered(graph: Graph, body: Body) -> tuple[Node, Shape, str]:
    """One of the nodes of a body whose elements are in order, the shape of its operand, and the operand's dtype.

    Raises: NotCovered where they are of several operands, dimensions or directions, or not elementwise work around them.
    """
    nodes = [node for node in body.nodes if node.kind == "order"]
    first = nodes[0]
    if len({(node.operands, node.dims, node.falling, node.shape) for node in nodes}) > 1:
        raise NotCovered("elements in more than one order")
    if any(node.kind not in ("order", "map", "view", "index") for node in body.nodes):
        raise NotCovered("elements in order with more than elementwise work around them")
    operand = first.reads()[0]
    made = body.node(operand)
    shape = graph.values[operand].shape if made is None else made.shape
    if operand in graph.values:
        return first, shape, graph.values[operand].dtype
    assert made is not None
    return first, shape, {"float": "float32", "int": "int64", "bool": "bool"}[made.compute]


class OrderKernel:
    """The kernel in the making.

    rows, cols, kept: numbers of rows, of their elements, and of those that are results. shortened: whether these are fewer.
    """

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body = graph, body
        self.node, self.shape, self.dtype = ordered(graph, body)
        self.method = stage.setting("method")
        dim = self.node.dims[0]
        self.outer, self.cols, self.inner = product(self.shape[:dim]), self.shape[dim], product(self.shape[dim + 1 :])
        self.kept = self.node.shape[dim]
        self.rows = product(tuple(size for size in (self.outer, self.inner) if size))
        self.shortened = self.kept != self.cols
        self.writer = Writer(graph, body, f"{name}_kernel")
        self.results: Variables = {}
        self.before = self._needed(self.node.reads(), product(self.shape))
        """What the elements that are put in order are made of."""

    def _needed(self, wanted: tuple[str, ...], space: Size) -> list[str]:
        """The nodes that some values are made of, without what is in order already, at the place at hand."""
        needed, found = set(wanted), []
        for node in reversed(self.body.nodes):
            if node.name in needed and node.kind != "order" and same(product(node.shape), space):
                found.append(node.name)
                needed |= set(node.reads()) if node.kind != "index" else set()
        return found[::-1]

    def write(self) -> None:
        """Write all of it. Raises: NotCovered."""
        writer = self.writer
        writer.preset(self.rows, "n_rows")
        writer.preset(self.cols, "n_cols")
        writer.preset(self.kept, "n_kept")
        if self.method == "count":
            self._count()
        else:
            check(self.dtype)
            self._sort()

    def _head(self, rows: str) -> None:
        """Write which rows a program has."""
        writer = self.writer
        writer.line(f"rows = {rows}")
        writer.widen("rows")
        if not is_one(self.inner):
            inner = writer.preset(self.inner, "n_inner")
            writer.line(f"outer = rows // {inner}")
            writer.line(f"inner = rows % {inner}")

    def _groups(self, columns: str, size: Size, mask: str, row_mask: str = "") -> tuple[Group, ...]:
        """The iteration space with some index of columns."""
        middle = Group(columns, size, mask)
        if is_one(self.inner):
            return (Group("rows", self.outer, row_mask), middle)
        return (Group("outer", self.outer, row_mask), middle, Group("inner", self.inner, row_mask))

    # -- in registers --------------------------------------------------------------------------------------------
    def _sort(self) -> None:
        writer, falling, stream = self.writer, self.node.falling, self.method == "stream"
        self._head("(tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]")
        writer.line(f"row_mask = rows < {writer.size(self.rows)}")
        if stream:
            writer.line(f"packs = tl.full([BLOCK_ROWS, KEPT], {LAST}, tl.int64)")
            writer.line(f"for start in range(0, {writer.size(self.cols)}, BLOCK_COLS):")
            writer.level += 1
        writer.line(f"cols = {'start + ' * stream}tl.arange(0, BLOCK_COLS)[None, :]")
        writer.line(f"mask = row_mask & (cols < {writer.size(self.cols)})")
        groups, variables = self._groups("cols", self.cols, "mask", "row_mask"), Variables()
        write_maps(writer, self.before, groups, variables)
        pack(writer, self._operand(groups, variables), self.dtype, falling, "each")
        self._store([value for value in self.body.stores if value in self.before], groups, variables, "mask")
        if stream:
            writer.line("if tl.min(each) < tl.max(packs):  # one of this block is among the first few so far")
            writer.line("    both = tl.join(packs, ~tl.topk(~each, KEPT)).reshape(BLOCK_ROWS, 2 * KEPT)")
            writer.line("    packs = ~tl.topk(~both, KEPT)")
            writer.level -= 1
        else:
            writer.line("packs = ~tl.topk(~each, KEPT)" if self.shortened else "packs = tl.sort(each)")
        wide = stream or self.shortened
        writer.line(f"cols = tl.arange(0, {'KEPT' if wide else 'BLOCK_COLS'})[None, :]")
        writer.line(f"mask = row_mask & (cols < {writer.size(self.kept)})")
        value, place = self._names()
        unpack(writer, "packs", self.dtype, falling, value, place)
        self._after(self._groups("cols", self.kept, "mask", "row_mask"), "mask")

    # -- by counting ---------------------------------------------------------------------------------------------
    def _count(self) -> None:
        """Raises: NotCovered where the elements are made in the kernel, and would be for each comparison."""
        if self.before:
            raise NotCovered("elements that are counted are made in the same kernel")
        writer, columns, value = self.writer, self.writer.size(self.cols), self.node.reads()[0]
        self._head("tl.program_id(0)")
        writer.line("cols = tl.program_id(1) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)")
        writer.line(f"col_mask = cols < {columns}")
        writer.load(value, self.shape, self._groups("cols", self.cols, "col_mask"), "own")
        self._key("own")
        writer.line("rank = tl.zeros([BLOCK_COLS], tl.int32)  # how many come before each")
        writer.line(f"for start in range(0, {columns}, {_CHUNK}):")
        writer.level += 1
        writer.line(f"others = start + tl.arange(0, {_CHUNK})")
        writer.line(f"there = others < {columns}")
        writer.load(value, self.shape, self._groups("others", self.cols, "there"), "their")
        self._key("their")
        sign = ">" if self.node.falling and self._wide() else "<"
        writer.line(f"first = their_key[None, :] {sign} own_key[:, None]")
        writer.line("equal = (their_key[None, :] == own_key[:, None]) & (others[None, :] < cols[:, None])")
        writer.line("rank += tl.sum(((first | equal) & there[None, :]).to(tl.int32), axis=1)")
        writer.level -= 1
        names = dict(zip(("values", "places"), self._names(), strict=True))
        if names["values"]:
            writer.line(f"{names['values']} = own")
        if names["places"]:
            writer.line(f"{names['places']} = cols")
        mask = "col_mask"
        if self.shortened:
            writer.line(f"mask = col_mask & (rank < {writer.size(self.kept)})")
            mask = "mask"
        self._after(self._groups("rank", self.kept, mask), mask)

    def _wide(self) -> bool:
        return BITS.get(self.dtype, 32) > 32

    def _key(self, variable: str) -> None:
        if self._wide():
            self.writer.line(f"{variable}_key = {variable}")
        else:
            key(self.writer, variable, self.dtype, self.node.falling, f"{variable}_key")

    # -- what both have ------------------------------------------------------------------------------------------
    def _names(self) -> tuple[str, str]:
        """Names of the values in order and of their places, "" for what nothing reads."""
        found = {node.operation: node.name for node in self.body.nodes if node.kind == "order"}
        self.results = {name: name for name in found.values()}
        return found.get("values", ""), found.get("places", "")

    def _operand(self, groups: tuple[Group, ...], variables: Variables) -> str:
        read = self.node.reads()[0]
        if read in variables:
            return variables[read]
        return load_once(self.writer, read, self.shape, groups, variables)

    def _after(self, groups: tuple[Group, ...], mask: str) -> None:
        """Write the work on what is in order, and the results."""
        wanted = tuple(value for value in self.body.stores if value not in self.before)
        write_maps(self.writer, self._needed(wanted, product(self.node.shape)), groups, self.results)
        self._store(wanted, groups, self.results, mask)

    def _store(
        self, values: list[str] | tuple[str, ...], groups: tuple[Group, ...], known: Variables, mask: str
    ) -> None:
        for value in values:
            if value not in known:
                raise NotCovered(f"{value} has another number of elements than what is in order")
            self.writer.store(value, known[value], bare(flat(groups, self.writer.size).index), mask)
