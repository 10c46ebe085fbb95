"""product_rows: reductions over a product's columns, kept up while it is made, so that it is never written.

A program owns its rows and makes the product block by block. Sums and extremes of what was made so far stay in registers.
So do the largest element and the sum of exponentials of the distances to it, which a logsumexp and a cross entropy need:
where a block has a larger element the sum so far is scaled down (see `row_online`, whose formulas these are).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Size, is_one, product, same
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import row_online
from mtmc.rewrite.templates.pointwise import Variables
from mtmc.rewrite.templates.row_extremes import IDENTITY, combined, reduced
from mtmc.rewrite.templates.writer import Writer

_KEPT_UP = ("sum", "max", "amax", "amin")
"""Reductions over the product's columns that can be kept up while the product is made."""


@dataclass(frozen=True)
class RowWork:
    """What is known of each row of a product once all of its columns are.

    reductions: in order. online: of sums of exponentials, by their names, the largest element. maps: elementwise work on the
    rows' numbers. wide: that on the product, without those exponentials.
    """

    reductions: tuple[Node, ...]
    online: dict[str, Node]
    maps: tuple[Node, ...]
    wide: tuple[Node, ...]

    def is_top(self, node: Node) -> bool:
        """Whether a reduction is the largest element that exponentials are taken of the distances to."""
        return node in self.online.values()

    def start(self, node: Node) -> str:
        """What a reduction starts from."""
        return row_online.LOWEST if self.is_top(node) else IDENTITY[node.operation]


def row_work(body: Body, dot: Node, after: Sequence[Node], n: Size) -> RowWork:
    """The parts of what follows a product. n: its columns. Raises: NotCovered where that is not row by row."""
    reductions, maps, wide = list[Node](), list[Node](), list[Node]()
    online, inside = _online(body, after, len(dot.shape) - 1)
    narrow = set[str]()
    for node in after:
        if node.name in inside:
            continue
        if node.kind == "reduce":
            once = node.dims == (len(dot.shape) - 1,) and node.operation in _KEPT_UP and node.compute != "int"
            if not once or node.reads()[0] in narrow:
                raise NotCovered(f"{node.name} is not one pass over the product's columns")
            narrow.add(node.name)
            reductions.append(node)
        elif any(read in narrow for read in node.reads()):
            others = [read for read in node.reads() if read not in narrow and body.node(read) is not None]
            if (same(product(node.shape), product(dot.shape)) and not is_one(n)) or len(others) > 1:
                raise NotCovered(f"{node.name} needs the whole row before it can be known")
            narrow.add(node.name)
            maps.append(node)
        elif not same(product(node.shape), product(dot.shape)):
            raise NotCovered(f"{node.name} has another number of elements than the product")
        else:
            wide.append(node)
    if reductions and any(value not in narrow for value in body.stores):
        raise NotCovered("the product itself is needed too")
    return RowWork(tuple(reductions), online, tuple(maps), tuple(wide))


def _online(body: Body, after: Sequence[Node], columns: int) -> tuple[dict[str, Node], frozenset[str]]:
    """Of sums of exponentials of distances to the largest element that element, and the names of the exponentials."""
    online, inside = dict[str, Node](), set[str]()
    for node in after:
        if node.kind != "reduce" or node.dims != (columns,):
            continue
        top = body.node(row_online.top_of_exponentials(body, node) or "")
        if top is None:
            continue
        chain = {node.reads()[0]}
        exps = body.node(node.reads()[0])
        if exps is not None and exps.operation == "tl.exp({0})":
            chain.add(exps.reads()[0])
        readers = {each.name for each in body.nodes if chain & set(each.reads())}
        if readers <= chain | {node.name} and not chain & set(body.stores):
            online[node.name] = top
            inside |= chain
    return online, frozenset(inside)


class RowKernel(Protocol):
    """What is asked of the kernel that is being written, see `product_kernel.ProductKernel`."""

    writer: Writer
    body: Body
    variables: Variables
    rows_work: RowWork
    split_n: int
    n_m: str
    n_n: str

    @property
    def batched(self) -> bool: ...
    def groups(self) -> tuple[Group, ...]: ...
    def write_product(self) -> None: ...
    def after(self, nodes: Sequence[Node], groups: tuple[Group, ...], variables: Variables, writer: Writer) -> None: ...


def write_rows(kernel: RowKernel) -> None:
    """The kernel's lines: the loop over blocks of columns, and what is left to do for each row."""
    writer, work = kernel.writer, kernel.rows_work
    for node in work.reductions:
        writer.line(f"{node.name} = tl.full([BLOCK_M, 1], {work.start(node)}, tl.float32)")
    blocks = f"tl.cdiv({kernel.n_n}, BLOCK_N)"
    if kernel.split_n > 1:
        writer.line(f"chunk = tl.cdiv({blocks}, {kernel.split_n})  # of the columns, for each program of these rows")
        writer.line("first_block = tl.program_id(2) * chunk")
        writer.line(f"for block_n in range(first_block, tl.minimum(first_block + chunk, {blocks})):")
    else:
        writer.line(f"for block_n in range(0, {blocks}):")
    writer.level += 1
    writer.line("cols = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
    writer.line(f"col_mask = (cols < {kernel.n_n}) | EVEN_N")
    kernel.write_product()
    kernel.after(work.wide, kernel.groups(), kernel.variables, writer)
    for node in work.reductions:
        if not work.is_top(node):
            _keep_up(kernel, node)
    writer.level -= 1
    offset = f"batch * {kernel.n_m} + rows" if kernel.batched else "rows"
    if kernel.split_n > 1:
        writer.comment("what this program found in its columns; the second kernel puts the shares together")
        place = f"({offset}) * {kernel.split_n} + tl.program_id(2)"
        for node in work.reductions:
            writer.line(f"tl.store({node.name}_parts + {place}, {node.name}, mask=row_mask)")
        return
    for node in work.reductions:
        if node.name in work.online:
            row_online.restore(writer, work.online[node.name], node)
        kernel.variables[node.name] = node.name
    groups = tuple(group for group in kernel.groups() if group.index != "cols")
    kernel.after(work.maps, groups, kernel.variables, writer)
    for value in kernel.body.stores:
        writer.store_at(value, kernel.variables[value], groups, "row_mask", offset)


def _keep_up(kernel: RowKernel, node: Node) -> None:
    """Add this block's columns to a reduction, or to a sum of exponentials and the largest element with it."""
    writer, top = kernel.writer, kernel.rows_work.online.get(node.name)
    own = top or node
    values = f"tl.where(col_mask, {kernel.variables[own.reads()[0]]}, {IDENTITY[own.operation]})"
    if top is None:
        reduced(writer, node.operation, values, f"{node.name}_block", floats=True)
        writer.line(f"{node.name} = {combined(node.operation, node.name, f'{node.name}_block')}")
        return
    name, total = top.name, node.name
    writer.line(f"{name}_each = {values}")
    reduced(writer, top.operation, f"{name}_each", f"{name}_block", floats=True)
    writer.line(f"{name}_new = {combined(top.operation, name, f'{name}_block')}")
    writer.line(f"{total}_block = tl.sum(tl.exp({name}_each - {name}_new), axis=1, keep_dims=True)")
    writer.line(f"{total} = {total} * tl.exp({name} - {name}_new) + {total}_block")
    writer.line(f"{name} = {name}_new")


def put_together(writer: Writer, work: RowWork, variables: Variables) -> None:
    """Lines of a second kernel with what all programs of each row found, [rows, SPLIT], as one."""
    for node in work.reductions:
        address = f"{node.name}_parts + rows * SPLIT + shares"
        writer.line(f"{node.name}_share = tl.load({address}, mask=row_mask, other={work.start(node)})")
    for node in work.reductions:
        top = work.online.get(node.name)
        if top is not None:
            row_online.put_together(writer, top, node, f"{top.name}_share", f"{node.name}_share")
            row_online.restore(writer, top, node)
        elif not work.is_top(node):
            reduced(writer, node.operation, f"{node.name}_share", node.name, floats=True)
        variables[node.name] = node.name
