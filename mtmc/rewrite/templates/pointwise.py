"""pointwise: any chain of elementwise ops over one iteration space, flat, `block` elements a program."""

from __future__ import annotations

from mtmc.rewrite.body import Body, Index, NotCovered, Trailing
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.channels_last import channels_last_values, handed_over, in_memory_order, is_channels_last
from mtmc.rewrite.templates.writer import (
    Launch,
    Printed,
    Writer,
    kernel_text,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)

Variables = dict[object, str]
"""What stands in which variable: a node by its name, an operand from outside by (operand, logical shape)."""


class Pointwise:
    """Elementwise ops, with operands that broadcast."""

    name = "pointwise"

    def matches(self, body: Body) -> bool:
        """Maps and views only."""
        return all(node.kind in ("map", "view") for node in body.nodes)

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
        write_maps(writer, [node.name for node in body.nodes], (group,), variables)
        for value in body.stores:
            writer.store(value, variables[value], "offs", "mask")
        return _assemble(graph, body, stage, name, writer, space)


def _space(graph: Graph, body: Body) -> Size:
    sizes = [product(graph.values[value].shape) for value in body.stores]
    if not all(same(size, sizes[0]) for size in sizes):
        raise NotCovered("results with another number of elements")
    for node in body.nodes:
        if not same(product(node.shape), sizes[0]):
            raise NotCovered(f"{node.name} has fewer elements than the result it is broadcast into")
    return sizes[0]


def write_maps(writer: Writer, names: list[str], groups: tuple[Group, ...], variables: Variables) -> None:
    """Write maps and views in order, loading operands from outside where they are first needed.

    variables: what already stands in a variable; it is added to.
    """
    for name in names:
        node = writer.body.node(name)
        assert node is not None
        if node.kind == "view":
            read = node.reads()[0]
            inside = read in variables
            shape = writer.tensor(read).shape if not inside else ()
            variables[name] = variables[read] if inside else load_once(writer, read, shape, groups, variables)
            continue
        parts = []
        for item in node.operands:
            if isinstance(item, Trailing) or (isinstance(item, str) and item not in variables):
                parts.append(load_once(writer, item, node.shape, groups, variables))
            elif isinstance(item, Index):
                parts.append(writer.index(item, node.shape, groups))
            else:
                parts.append(variables[item] if isinstance(item, str) else writer.text_of(item))
        writer.line(f"{name} = " + node.operation.format(*parts, rows="rows", cols="cols"))
        variables[name] = name


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
    scope, spare = scope_of(graph, body), dict[str, Varying]()
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
        (("WIDE", f"{count} >= 2**31"), ("BLOCK", str(block))),
        stage.number("num_warps"),
    )
    lines = [*handed_over(graph, body, stage, writer, scope, spare), *launch_lines(launch, scope, spare)]
    return printed(
        body, name, [text], lines, spare, channels_last_values(graph, body) if is_channels_last(stage) else ()
    )
