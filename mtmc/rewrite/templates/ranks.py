"""ranks: elementwise work that needs to know how many elements of a mask hold before one: what `masked_scatter` picks.

One kernel counts what holds in each block. A second one adds up the counts of the blocks before its own, counts on inside
of it, and does all else: what is looked up at a rank is read where it lies, and nothing in between is written.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Size, Varying, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables, home
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
from mtmc.rewrite.templates.pointwise import at_home, block_of, write_maps
from mtmc.rewrite.templates.writer import Writer, kernel_text

MOST = 2**27
"""Elements of a mask: each program reads the counts of all blocks before it, half a gigabyte of them together here."""
TOGETHER = 1024
"""Counts that a program adds up at once."""


class Ranks:
    """Work around the ranks of a mask's elements."""

    name = "ranks"

    def matches(self, body: Body) -> bool:
        """Has ranks."""
        return any(node.kind == "rank" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """4096 elements a program: few counts."""
        return {"block": 4096, "num_warps": 8}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """Two kernels. Raises: NotCovered where there is more than elementwise work around the ranks of one mask, or
        results have other numbers of elements."""
        node = _ranked(graph, body)
        space = product(node.shape)
        counting, writer = Writer(graph, body, f"{name}_count_kernel"), Writer(graph, body, f"{name}_kernel")
        _count(counting, node, space)
        _write(writer, node, space)
        return _assemble(graph, body, stage, name, (counting, writer), space)


def _ranked(graph: Graph, body: Body) -> Node:
    """The node with the ranks. Raises: NotCovered."""
    nodes = [node for node in body.nodes if node.kind == "rank"]
    if len(nodes) > 1 or any(node.kind not in ("rank", "map", "view", "index") for node in body.nodes):
        raise NotCovered("more than elementwise work around the ranks of one mask")
    space = product(nodes[0].shape)
    if not all(same(product(graph.values[value].shape), space) for value in body.stores) or space[0] > MOST:
        raise NotCovered(f"results of another number of elements than a mask, or one of more than {MOST}")
    return nodes[0]


def _begin(writer: Writer, space: Size) -> Group:
    """Lines that say which elements a program has."""
    count = writer.preset(space, "n_elements")
    writer.line("block = tl.program_id(0)")
    return block_of(writer, count, space)


def _held(writer: Writer, node: Node, group: Group, variables: Variables) -> None:
    """Lines that make ones where the mask holds."""
    at = home(writer, node.shape, (group,))
    assert at is not None
    value = Elements(writer, (group,), variables).value(node.operands[0], at)
    writer.line(f"held = tl.where(mask & ({value} != 0), 1, 0)")


def _count(writer: Writer, node: Node, space: Size) -> None:
    _held(writer, node, _begin(writer, space), {})
    writer.line("tl.store(counts + block, tl.sum(held, axis=0))")


def _write(writer: Writer, node: Node, space: Size) -> None:
    variables: Variables = {}
    group = _begin(writer, space)
    writer.line("before = tl.zeros([TOGETHER], tl.int64)")
    writer.line("for start in range(0, block, TOGETHER):")
    writer.line("    others = start + tl.arange(0, TOGETHER)")
    writer.line("    before += tl.load(counts + others, mask=others < block, other=0)")
    names = at_home(writer.body, space)
    own = [*at_home(writer.body, space, (str(node.operands[0]),))]
    write_maps(writer, own, (group,), variables)
    _held(writer, node, group, variables)
    writer.line(f"{node.name} = tl.sum(before, axis=0) + tl.cumsum(held, axis=0) - 1")
    writer.line(f"{node.name} = tl.where(held == 1, {node.name}, -1)")
    variables[node.name] = node.name
    rest = [name for name in names if name not in own and name != node.name]
    write_maps(writer, rest, (group,), variables)
    for value in writer.body.stores:
        writer.store(value, variables[value], "offs", "mask")


def _assemble(
    graph: Graph, body: Body, stage: Stage, name: str, writers: tuple[Writer, Writer], space: Size
) -> Printed:
    """The kernels and their launcher."""
    counting, writer = writers
    scope, spare = scope_with_results(graph, body), dict[str, Varying]()
    count, block, warps = (
        size_expression(space, "n_elements", scope, spare),
        stage.number("block"),
        stage.number("num_warps"),
    )
    lines = list(dict.fromkeys([*contiguous_lines(counting), *contiguous_lines(writer)]))
    lines += [allocation(graph, body, value, scope_of(graph, body), spare) for value in body.stores]
    blocks = f"triton.cdiv({count}, {block})"
    lines.append(f"{INDENT}counts = torch.empty(({blocks},), device={body.loads[0]}.device, dtype=torch.int32)")
    texts, ops = list[str](), ", ".join(stage.ops)
    for each, outputs, said in (
        (counting, (), "how many elements of a mask hold in each block"),
        (writer, body.stores, "BLOCK elements a program"),
    ):
        wide = each.wide(count, space)
        constants = [("WIDE", wide), ("BLOCK", str(block))]
        constants += [("TOGETHER", str(TOGETHER))] if each is writer else []
        texts.append(kernel_text(each, outputs, ("counts",), [key for key, _ in constants], f"{ops}: {said}."))
        lines += launch_lines(
            Launch(each.name, each, outputs, ("counts",), (blocks,), tuple(constants), warps), scope, spare
        )
    return printed(body, name, texts, lines, spare)
