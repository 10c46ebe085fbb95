"""channels_last: kernels over tensors whose channels lie next to each other in memory.

A kernel that loops over elements in the order of memory does not care what the order means, as long as all its tensors of
the full shape have the same. What broadcasts is read by the place in that order: the shapes of the kernel's nodes and
operands are permuted, channels last, and the dimensions of reductions with them; then the template prints the permuted body
as it prints any other. A reduction over the channels becomes one over the last dimension, one over space keeps the channels
as neighbours. Values with one element a channel, or one a position, lie the same either way.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, shape_of
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Varying, is_one, product, same
from mtmc.rewrite.index_maps import Joined, Sliced
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.templates.launcher import allocation, contiguous_lines
from mtmc.rewrite.templates.writer import Writer

FORMATS = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
"""Memory formats by the number of dimensions."""
MOVED = (Joined, Sliced)
"""Other places along one dimension, which is another one of a tensor that lies channels last."""


def is_channels_last(stage: Stage) -> bool:
    """Whether a stage's tensors of the full shape lie channels last."""
    return dict(stage.schedule).get("layout") == "channels_last"


def full_shapes(graph: Graph, body: Body) -> tuple[Shape, ...]:
    """The shapes whose tensors lie channels last: of what is reduced, of windows' operand and result, else of results; and
    of what is joined to one of these shapes, or what a slice of one of them is of."""
    found = list(_whole_shapes(graph, body))
    for node in reversed(body.nodes):
        if node.kind == "index" and isinstance(node.index, MOVED) and node.shape in found:
            found += [shape_of(graph, body, read) for read in node.reads()]
    return tuple(dict.fromkeys(found))


def _whole_shapes(graph: Graph, body: Body) -> tuple[Shape, ...]:
    for node in body.nodes:
        if node.kind in ("window", "reduce") and isinstance(node.operands[0], str):
            inside = body.node(node.operands[0])
            operand = inside.shape if inside else graph.values[node.operands[0]].shape
            under = _ungrouped(graph, body, inside)
            operand = operand if under is None else under
            return (operand, node.shape) if node.kind == "window" else (operand,)
    return (graph.values[body.stores[0]].shape,)


def _ungrouped(graph: Graph, body: Body, node: Node | None) -> Shape | None:
    """The shape of a tensor whose channels a node sees in groups, [N, groups, channels of each, ...]; None where it is no
    such view."""
    if node is None or len(node.shape) - 1 not in FORMATS:
        return None
    nodes = [each for each in body.nodes if each.kind == "view" and each.shape == node.shape]
    found = [shape_of(graph, body, view.operands[0]) for view in nodes]
    return next((shape for shape in found if groups_channels(node.shape, shape)), None)


def groups_channels(part: Shape, full: Shape) -> bool:
    """Whether a shape is a full one with its channels in groups."""
    alike = len(part) == len(full) + 1 and part[0] == full[0] and part[3:] == full[2:]
    return alike and same(product(part[1:3]), full[1])


def is_of_a_group(part: Shape) -> bool:
    """Whether a shape [N, groups, channels of each, ...] is that of a number for each group."""
    return all(is_one(size) for size in part[2:])


def channels_last_values(graph: Graph, body: Body) -> tuple[str, ...]:
    """The operands and results that lie channels last where the stage does."""
    full = full_shapes(graph, body)
    filters = {read for node in body.nodes if node.kind == "window" for read in node.reads()[1:]}
    return tuple(
        value for value in (*body.loads, *body.stores) if graph.values[value].shape in full and value not in filters
    )


def handed_over(
    graph: Graph, body: Body, stage: Stage, writer: Writer, scope: Scope, spare: dict[str, Varying]
) -> list[str]:
    """The launcher's lines that see to the order in memory of what it is given, and allocate results in theirs."""
    last = channels_last_values(graph, body) if is_channels_last(stage) else ()
    lines = permuting_lines(graph, body, writer) if last else []
    lines += contiguous_lines(writer)
    for value in body.stores:
        if value not in last or body.part(value) is not None:
            lines.append(allocation(graph, body, value, scope, spare))
            continue
        dtype, shape = graph.values[value].dtype, graph.values[value].shape
        alike = [load for load in body.loads if load in last and graph.values[load].shape == shape]
        if not alike:  # joined here: every operand is a part of it
            lines.append(allocation(graph, body, value, scope, spare, FORMATS[len(shape)]))
            continue
        same = [load for load in alike if graph.values[load].dtype == dtype]
        given = same[0] if same else f"{alike[0]}, dtype=torch.{dtype}"
        lines.append(f"{INDENT}{value} = torch.empty_like({given})")
    return lines


def permuting_lines(graph: Graph, body: Body, writer: Writer) -> list[str]:
    """The launcher's lines that turn operands which do not lie channels last; the others are taken as they are."""
    loads = [value for value in channels_last_values(graph, body) if value in body.loads]
    writer.contiguous -= set(loads)
    memory = FORMATS[len(full_shapes(graph, body)[0])]
    return [f"{INDENT}{value} = {value}.contiguous(memory_format={memory})" for value in loads]
