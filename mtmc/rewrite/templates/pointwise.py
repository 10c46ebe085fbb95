"""pointwise: any chain of elementwise ops over one iteration space, flat, `block` elements a program."""

from __future__ import annotations

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Trailing
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, product, same
from mtmc.rewrite.index_maps import At, broadcast_at
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.channels_last import channels_last_values, handed_over, in_memory_order, is_channels_last
from mtmc.rewrite.templates.elements import Elements, Variables, home
from mtmc.rewrite.templates.writer import (
    Launch,
    Printed,
    Writer,
    kernel_text,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)


class Pointwise:
    """Elementwise ops, with operands that broadcast."""

    name = "pointwise"

    def matches(self, body: Body) -> bool:
        """Nothing that is reduced, multiplied or scanned."""
        return all(node.kind in ("map", "view", "index") for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """1024 elements a program, 4 warps."""
        return {"block": 1024, "num_warps": 4}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where results differ in their number of elements."""
        space = _space(graph, body)
        writer = Writer(*in_memory_order(graph, body, stage), f"{name}_kernel")
        count = writer.preset(space, "n_elements")
        group = Group("offs", space, "mask")
        writer.line("block = tl.program_id(0)")
        writer.line("if WIDE:  # more elements than a 32-bit offset can reach")
        writer.line("    block = block.to(tl.int64)")
        writer.line("offs = block * BLOCK + tl.arange(0, BLOCK)")
        writer.line(f"mask = offs < {count}")
        variables: Variables = {}
        write_maps(writer, at_home(body, space), (group,), variables)
        for value in body.stores:
            writer.store(value, variables[value], "offs", "mask")
        return _assemble(graph, body, stage, name, writer, space)


def _space(graph: Graph, body: Body) -> Size:
    sizes = [product(graph.values[value].shape) for value in body.stores]
    if not all(same(size, sizes[0]) for size in sizes):
        raise NotCovered("results with another number of elements")
    return sizes[0]


def at_home(body: Body, space: Size) -> list[str]:
    """The nodes that are computed at the place at hand, in order: of as many elements as the iteration space, and needed
    there by others or as a result. What is not among them is computed where an element of it is needed."""
    needed, found = set(body.stores), []
    for node in reversed(body.nodes):
        if node.name in needed and same(product(node.shape), space):
            found.append(node.name)
            needed |= set(node.reads()) if node.kind != "index" else set()
    return list(reversed(found))


def write_maps(writer: Writer, names: list[str], groups: tuple[Group, ...], variables: Variables) -> None:
    """Write maps, views and what moves elements in order, loading operands from outside where they are first needed.

    variables: what already stands in a variable; it is added to. Raises: NotCovered where a value is needed at a place for
    which it is not known.
    """
    elements = Elements(writer, groups, variables)
    for name in names:
        node = writer.body.node(name)
        assert node is not None
        if node.kind == "index":
            variables[name] = elements.value(name, _home(writer, node, groups))
        elif node.kind == "view":
            variables[name] = _viewed(elements, node)
        else:
            _write_map(elements, node)


def _home(writer: Writer, node: Node, groups: tuple[Group, ...]) -> At:
    at = home(writer, node.shape, groups)
    if at is None:
        raise NotCovered(f"{node.name} has another number of elements than the kernel goes over")
    return at


def _viewed(elements: Elements, node: Node) -> str:
    writer, variables, read = elements.writer, elements.variables, node.reads()[0]
    if read in variables:
        return variables[read]
    if writer.body.node(read) is not None:
        return elements.value(node.name, _home(writer, node, elements.groups))
    return load_once(writer, read, writer.tensor(read).shape, elements.groups, variables)


def _write_map(elements: Elements, node: Node) -> None:
    writer, groups, variables = elements.writer, elements.groups, elements.variables
    parts = []
    for item in node.operands:
        if isinstance(item, str) and item in variables:
            parts.append(variables[item])
        elif isinstance(item, str) and writer.body.node(item) is not None:
            parts.append(elements.value(item, broadcast_at(_home(writer, node, groups), elements.shape(item))))
        elif isinstance(item, (str, Trailing)):
            parts.append(load_once(writer, item, node.shape, groups, variables))
        elif isinstance(item, Index):
            parts.append(writer.index(item, node.shape, groups))
        else:
            parts.append(writer.text_of(item))
    writer.line(f"{node.name} = " + node.operation.format(*parts, rows="rows", cols="cols"))
    variables[node.name] = node.name


def load_once(
    writer: Writer, item: str | Trailing, shape: Shape, groups: tuple[Group, ...], variables: Variables
) -> str:
    """The variable that holds an operand from outside, read at a logical shape; it is loaded if it is not yet."""
    value = item.value if isinstance(item, Trailing) else item
    key = (item, shape)
    if key not in variables:
        taken = set(variables.values())
        variable = value if isinstance(item, str) else f"{value}_column"
        while variable in taken:
            variable += "_"
        writer.load(item, shape, groups, variable)
        variables[key] = variable
    return variables[key]


def _assemble(graph: Graph, body: Body, stage: Stage, name: str, writer: Writer, space: Size) -> Printed:
    scope, spare = scope_with_results(graph, body), dict[str, Varying]()
    ops = ", ".join(stage.ops)
    text = kernel_text(writer, body.stores, (), ("WIDE", "BLOCK"), f"{ops}: BLOCK elements a program.")
    count = size_expression(space, "n_elements", scope, spare)
    block = stage.number("block")
    launch = Launch(
        f"{name}_kernel",
        writer,
        body.stores,
        (),
        (f"triton.cdiv({count}, {block})",),
        (("WIDE", writer.wide(count, space)), ("BLOCK", str(block))),
        stage.number("num_warps"),
    )
    lines = handed_over(graph, body, stage, writer, scope_of(graph, body), spare)
    lines += launch_lines(launch, scope, spare)
    return printed(
        body, name, [text], lines, spare, channels_last_values(graph, body) if is_channels_last(stage) else ()
    )
