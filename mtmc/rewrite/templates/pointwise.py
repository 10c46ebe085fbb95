"""pointwise: any chain of elementwise ops over one iteration space, flat, `block` elements a program.

Results with other numbers of elements are parts of one launch: a program finds by its number which part it belongs to. What
two parts need is worked out in both, so no program waits for another. Where an operand lies transposed, a program has a
tile: `tile` elements of that one's neighbours, `block` in all. "eviction_policy": see `eviction`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Trailing
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, is_one, power_of_two_above, product, same
from mtmc.rewrite.index_maps import At, broadcast_at
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.as_laid import Laid, as_laid
from mtmc.rewrite.templates.channels_last import channels_last_values, handed_over, is_channels_last
from mtmc.rewrite.templates.elements import Elements, Variables, home
from mtmc.rewrite.templates.eviction import policy_of
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)
from mtmc.rewrite.templates.permuted_body import in_memory_order
from mtmc.rewrite.templates.taps import is_tapped
from mtmc.rewrite.templates.transposing import Transposed, transposed, write_tile
from mtmc.rewrite.templates.writer import Writer, kernel_text


class Pointwise:
    """Elementwise ops, with operands that broadcast."""

    name = "pointwise"

    def matches(self, body: Body) -> bool:
        """Nothing that is reduced, multiplied or scanned."""
        return all(node.kind in ("map", "view", "index") or is_tapped(node) for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """1024 elements a program, 4 warps, or one a thread where each is of a window; a tile of 64 x 64 and 8 warps where
        an operand lies transposed."""
        laid = as_laid(graph, body)
        found = transposed(laid.graph, laid.body)
        if found is None:
            windows = any(node.kind == "window" for node in body.nodes)
            return {"block": FEW if windows else 1024, "num_warps": 4}
        across, along = (min(TILE, power_of_two_above(size[0])) for size in (found.across, found.along))
        return {"block": across * along, "num_warps": 8 if across * along > 2048 else 4, "tile": across}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where results differ too much in their number of elements."""
        parts = _parts(graph, body)
        if len(parts) > 1 and is_channels_last(stage):
            raise NotCovered("results with another number of elements, channels last")
        laid = Laid(graph, body) if is_channels_last(stage) else as_laid(graph, body)
        writer = Writer(*in_memory_order(laid.graph, laid.body, stage), f"{name}_kernel")
        writer.windows, writer.policy = len(parts) == 1, policy_of(stage)
        tiles = transposed(laid.graph, laid.body) if tile_of(stage) and not is_channels_last(stage) else None
        if tiles is not None:
            writer.line("block = tl.program_id(0)")
            _write_values(writer, *parts[0], write_tile(writer, tiles))
        elif len(parts) == 1:
            writer.preset(parts[0][0], "n_elements")
            writer.line("block = tl.program_id(0)")
            _write_part(writer, *parts[0])
        else:
            _write_parts(writer, parts)
        return _assemble(laid, stage, name, writer, [space for space, _ in parts], tiles)


ELSEWHERE = ("index", "window")
"""Kinds of nodes that ask for their operands at other places than the one at hand."""
FEW = 128
"""Elements of a program of which each is of a window: all its taps are loaded at once."""
TILE = 64
"""Elements of a tile each way."""
Part = tuple[Size, tuple[str, ...]]
"""Results with the same number of elements, and that number."""
MOST_PARTS = 6
"""Of a launch."""


def _parts(graph: Graph, body: Body) -> list[Part]:
    """The results by their numbers of elements. Raises: NotCovered where there are many."""
    found: list[tuple[Size, list[str]]] = []
    for value in body.stores:
        size = product(graph.values[value].shape)
        mine = next((values for other, values in found if same(size, other)), None)
        if mine is None:
            found.append((size, [value]))
        else:
            mine.append(value)
    if len(found) > MOST_PARTS:
        raise NotCovered(f"results with more than {MOST_PARTS} numbers of elements")
    return [(size, tuple(values)) for size, values in found]


def block_of(writer: Writer, count: str, space: Size) -> Group:
    """Lines that say which elements the program has whose number is `block`. count: how many there are in all."""
    writer.widen("block")
    writer.line("offs = block * BLOCK + tl.arange(0, BLOCK)")
    writer.line(f"mask = offs < {count}")
    return Group("offs", space, "mask")


def _write_part(writer: Writer, space: Size, stores: tuple[str, ...]) -> None:
    """Lines that make one block of some results."""
    _write_values(writer, space, stores, (block_of(writer, writer.size(space), space),))


def _write_values(writer: Writer, space: Size, stores: tuple[str, ...], groups: tuple[Group, ...]) -> None:
    """Lines that make some results where a program is."""
    variables: Variables = {}
    writer.streamed = space
    write_maps(writer, at_home(writer.body, space, stores), groups, variables)
    for value in stores:
        writer.store_at(value, variables[value], groups, "mask")


def _write_parts(writer: Writer, parts: list[Part]) -> None:
    """Lines of a kernel whose programs belong to several parts, in order."""
    writer.line("program = tl.program_id(0)")
    writer.line("end_0 = 0")
    for at, (space, stores) in enumerate(parts):
        last = at == len(parts) - 1
        if not last:
            writer.line(f"end_{at + 1} = end_{at} + tl.cdiv({writer.size(space)}, BLOCK)")
        between = f"(program >= end_{at}) & (program < end_{at + 1})" if at else "program < end_1"
        writer.line(f"if {f'program >= end_{at}' if last else between}:")
        writer.level += 1
        first = len(writer.lines)
        writer.line(f"block = program - end_{at}")
        _write_part(writer, space, stores)
        writer.lines[first:] = _own_names(writer.lines[first:], at)
        writer.level -= 1


_ASSIGNED = re.compile(r" *(\w+) = ")


def _own_names(lines: list[str], part: int) -> list[str]:
    """The lines of a part with names of its own: a name may stand for one type alone in all of a kernel."""
    names = {match[1] for line in lines if (match := _ASSIGNED.match(line))}
    word = re.compile(rf'(?<![."])\b({"|".join(sorted(names))})\b(?!=)')
    return [word.sub(rf"\1_of_{part}", line) for line in lines]


def at_home(body: Body, space: Size, stores: Sequence[str] | None = None) -> list[str]:
    """The nodes that are computed at the place at hand, in order: of as many elements as the iteration space, and needed
    there by others or as a result (one of `stores`, if only some are). What is not among them is computed where an element
    of it is needed."""
    needed, found = set(body.stores if stores is None else stores), []
    for node in reversed(body.nodes):
        if node.name in needed and same(product(node.shape), space):
            found.append(node.name)
            needed |= set(node.reads()) if node.kind not in ELSEWHERE else set()
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
        if node.kind in ELSEWHERE:
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
    writer.note_made(node.name, node.operation, parts)
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


def tile_of(stage: Stage) -> int:
    """How many elements a tile has across, 0 where programs go by the order of the result."""
    return int(dict(stage.schedule).get("tile", 0))


def _assemble(
    laid: Laid,
    stage: Stage,
    name: str,
    writer: Writer,
    spaces: list[Size],
    tiles: Transposed | None,
) -> Printed:
    graph, body = laid.graph, laid.body
    scope, spare = scope_with_results(graph, body), dict[str, Varying]()
    ops, block = ", ".join(stage.ops), stage.number("block")
    blocks, held = [("BLOCK", str(block))], "BLOCK elements a program."
    if tiles is not None:
        blocks = [("BLOCK_ACROSS", str(tile_of(stage))), ("BLOCK_ALONG", str(block // tile_of(stage)))]
        held = "BLOCK_ACROSS x BLOCK_ALONG elements a program."
    text = kernel_text(writer, body.stores, (), ("WIDE", *(name for name, _ in blocks)), f"{ops}: {held}")
    labels = ["n_elements", *(f"n_elements_{at}" for at in range(1, len(spaces)))]
    counts = [size_expression(space, label, scope, spare) for space, label in zip(spaces, labels, strict=True)]
    wide = [writer.wide(count, space) for count, space in zip(counts, spaces, strict=True)]
    grid = " + ".join(f"triton.cdiv({count}, {block})" for count in counts)
    if tiles is not None:
        sizes = [size_expression(size, "n_tiles", scope, spare) for size in (tiles.across, tiles.along)]
        grid = " * ".join(f"triton.cdiv({size}, {text})" for size, (_, text) in zip(sizes, blocks, strict=True))
        if tiles.lead and not is_one(tiles.lead):
            grid = f"{size_expression(tiles.lead, 'n_lead', scope, spare)} * {grid}"
    launch = Launch(
        f"{name}_kernel",
        writer,
        body.stores,
        (),
        (grid,),
        (("WIDE", " or ".join(dict.fromkeys(wide))), *blocks),
        stage.number("num_warps"),
    )
    lines = [*laid.before, *handed_over(graph, body, stage, writer, scope_of(graph, body), spare)]
    lines += [*launch_lines(launch, scope, spare), *laid.after]
    last = channels_last_values(graph, body) if is_channels_last(stage) else ()
    return replace(printed(body, name, [text], lines, spare, last), as_laid=laid.results)
