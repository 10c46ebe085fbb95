"""bags: the sum, mean or largest of the rows of a table at the indices of each bag, and elementwise work on that.

A program has one bag and some columns. It loops over the bag's indices, some at a time, and reads their rows where they lie:
bags may have any length, also none at all, which gives 0 as torch does.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Size, Varying, power_of_two_above, product, same
from mtmc.rewrite.places import Digit, Variable, one
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)
from mtmc.rewrite.templates.pointwise import at_home, write_maps
from mtmc.rewrite.templates.writer import Writer, kernel_text

MOST_COLUMNS = 256
"""Of a program."""
TILE = 2048
"""Elements of rows that a program reads at once."""


class Bags:
    """Rows of a table, bag by bag."""

    name = "bags"

    def matches(self, body: Body) -> bool:
        """Has bags."""
        return any(node.kind == "bag" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """A row as a whole where it is short, and a few rows at a time."""
        columns = power_of_two_above(_bag(graph, body).shape[1][0])
        block = max(16, min(MOST_COLUMNS, columns))
        return {"block_cols": block, "block_rows": min(32, TILE // block), "num_warps": 4}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work behind the bags of one table."""
        node, writer = _bag(graph, body), Writer(graph, body, f"{name}_kernel")
        _write(writer, node)
        return _assemble(graph, body, stage, name, writer, node)


def _bag(graph: Graph, body: Body) -> Node:
    """The node of the bags. Raises: NotCovered."""
    nodes = [node for node in body.nodes if node.kind == "bag"]
    if len(nodes) > 1 or any(node.kind not in ("bag", "map", "view", "index") for node in body.nodes):
        raise NotCovered("more than elementwise work around the bags of one table")
    if not all(same(product(graph.values[value].shape), product(nodes[0].shape)) for value in body.stores):
        raise NotCovered("results of another number of elements than bags have")
    return nodes[0]


def _write(writer: Writer, node: Node) -> None:
    """The whole kernel."""
    (bags, columns), count = node.shape, _count(writer, node)
    ones = (1,) * len(columns)
    writer.line("bag = tl.program_id(0)")
    writer.widen("bag")
    writer.line("cols = tl.program_id(1) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)")
    writer.line(f"mask = cols < {writer.preset(columns, 'n_cols')}")
    groups = (Group("bag", bags, ""), Group("cols", columns, "mask"))
    variables: Variables = {}
    ends = Elements(writer, groups, variables)
    first, last = (ends.value(item, (one(Digit("bag", ones, bags, True)),)) for item in node.operands[1:3])
    writer.line(f"begin = ({first}).to(tl.int64)")
    writer.line(f"end = tl.minimum(({last}).to(tl.int64), {writer.preset(count, 'n_each')})")
    _loop(writer, node, groups[1], count)
    _finish(writer, node, groups[1], count)
    variables[node.name] = node.name
    rest = [name for name in at_home(writer.body, product(node.shape)) if name != node.name]
    write_maps(writer, rest, groups, variables)
    for value in writer.body.stores:
        writer.store(value, variables[value], f"bag * {writer.size(columns)} + cols", "mask")


def _count(writer: Writer, node: Node) -> Size:
    """How many rows there are for all bags."""
    rows = writer.body.node(str(node.operands[0]))
    assert rows is not None
    return rows.shape[0]


def _loop(writer: Writer, node: Node, columns: Group, count: Size) -> None:
    """Lines that go through a bag's rows."""
    name, ones = node.name, (1,) * len(count)
    largest = node.operation == "max"
    writer.line(f"{name}_acc = tl.full([BLOCK_ROWS, BLOCK_COLS], {_LEAST if largest else '0.0'}, tl.float32)")
    if node.operation != "sum":
        writer.line("counted = tl.zeros([BLOCK_ROWS, 1], tl.int32)")
    if largest:
        writer.line(f"lowest = tl.full([BLOCK_ROWS, 1], {2**62}, tl.int64)")
    writer.line("for start in range(begin, end, BLOCK_ROWS):")
    writer.level += 1
    writer.line("each = start + tl.arange(0, BLOCK_ROWS)[:, None]")
    writer.line("inside = each < end")
    rows = Elements(writer, (Group("each", count, "inside"), columns), {})
    place = one(Digit("each", ones, count, True))
    if len(node.operands) > 3:
        writer.line(f"counts = inside & {rows.value(node.operands[3], (place,))}")
    else:
        writer.line("counts = inside")
    value = rows.value(node.operands[0], (place, one(Digit("cols", ones, columns.size, True))))
    if largest:
        writer.line(f"{name}_new = tl.where(counts, {value}, {_LEAST})")
        writer.line(f"{name}_acc = tl.where({name}_new > {name}_acc, {name}_new, {name}_acc)")
        writer.line("lowest = tl.minimum(lowest, tl.where(counts, each, lowest))")
    else:
        writer.line(f"{name}_acc += tl.where(counts, {value}, 0.0)")
    if node.operation != "sum":
        writer.line("counted += counts.to(tl.int32)")
    writer.level -= 1


_LEAST = 'float("-inf")'


def _finish(writer: Writer, node: Node, columns: Group, count: Size) -> None:
    """Lines that put the rows of a bag together. The largest is NaN where the first row is, as torch finds it: no number
    is greater than that."""
    name, ones = node.name, (1,) * len(count)
    if node.operation == "sum":
        writer.line(f"{name} = tl.sum({name}_acc, axis=0)")
        return
    writer.line("n_counted = tl.sum(tl.sum(counted, axis=1), axis=0)")
    if node.operation == "mean":
        writer.line(f"{name} = tl.sum({name}_acc, axis=0) / tl.maximum(n_counted, 1)")
        return
    writer.line("lead = tl.where(n_counted > 0, tl.min(tl.min(lowest, axis=1), axis=0), 0)")
    writer.hangs["lead"] = frozenset()
    rows = Elements(writer, (columns,), {})
    place = one(Variable("lead", count)).below(count)
    first = rows.value(node.operands[0], (place, one(Digit("cols", ones, columns.size, True))))
    writer.line(f"{name} = tl.max({name}_acc, axis=0)")
    writer.line(f"{name} = tl.where({first} != {first}, {first}, {name})")
    writer.line(f"{name} = tl.where(n_counted > 0, {name}, 0.0)")


def _assemble(graph: Graph, body: Body, stage: Stage, name: str, writer: Writer, node: Node) -> Printed:
    """The kernel and its launcher."""
    scope, spare = scope_with_results(graph, body), dict[str, Varying]()
    bags = size_expression(node.shape[0], "n_bags", scope, spare)
    columns = size_expression(node.shape[1], "n_cols", scope, spare)
    block = stage.number("block_cols")
    constants = (
        ("WIDE", writer.wide(f"{bags} * {columns}", product(node.shape))),
        ("BLOCK_ROWS", str(stage.number("block_rows"))),
        ("BLOCK_COLS", str(block)),
    )
    doc = f"{', '.join(stage.ops)}: a bag and BLOCK_COLS columns a program, BLOCK_ROWS rows at a time."
    text = kernel_text(writer, body.stores, (), [key for key, _ in constants], doc)
    lines = contiguous_lines(writer)
    lines += [allocation(graph, body, value, scope_of(graph, body), spare) for value in body.stores]
    grid = (bags, f"triton.cdiv({columns}, {block})")
    launch = Launch(f"{name}_kernel", writer, body.stores, (), grid, constants, stage.number("num_warps"))
    lines += launch_lines(launch, scope, spare)
    return printed(body, name, [text], lines, spare)
