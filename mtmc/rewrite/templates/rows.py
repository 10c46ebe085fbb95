"""rows: how a body with reductions lies over rows and columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mtmc.rewrite.body import Body, Node, NotCovered, leading_to, shape_of
from mtmc.rewrite.graph import Graph, Size, Tensor, is_one, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group, split
from mtmc.rewrite.templates.permuted_body import in_memory_order
from mtmc.rewrite.templates.row_online import top_of_exponentials


@dataclass(frozen=True)
class Layout:
    """How a body lies over rows and columns.

    before, lead, outer, inside, inner: sizes of what stands one behind the other: rows, columns, rows, columns, rows. Mostly
    there is no lead, nor what is before it: a batch norm has its channels as rows, the batch before them and the pixels
    behind them as columns. A group norm channels last has images and groups as rows, pixels and a group's channels as
    columns.
    level: node -> number of reductions it waits for.
    place: node -> "full" (an element for each row and column), "row", "total" (one for all rows) or "elsewhere": of another
    number of elements, and computed where something that moves elements, or broadcasts, needs one of them.
    online: sum of exp(x - m) -> m, the largest x: a loop over the row finds both in one pass, see `row_online`.
    """

    lead: Size
    outer: Size
    inside: Size
    inner: Size
    level: dict[str, int]
    place: dict[str, str]
    online: dict[str, str] = field(default_factory=dict)
    before: Size = ()

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return _times(self.before, self.outer, self.inner)

    @property
    def cols(self) -> Size:
        """Number of columns."""
        return _times(self.lead, self.inside)

    @property
    def parts(self) -> tuple[Size, ...]:
        """What stands one behind the other."""
        return self.before, self.lead, self.outer, self.inside, self.inner


def _times(*sizes: Size) -> Size:
    return product(tuple(size for size in sizes if size))


def lay_out(graph: Graph, body: Body) -> Layout:
    """Rows and columns of a body. Raises: NotCovered where its reductions are not over the same rows."""
    first = next(node for node in body.nodes if node.kind == "reduce")
    before, lead, outer, inside, inner = _parts(shape_of(graph, body, first.operands[0]), first.dims)
    layout = Layout(lead, outer, inside, inner, {}, {}, before=before)
    for node in body.nodes:
        _place(graph, body, layout, node)
    return layout


def rows_of(graph: Graph, body: Body, stage: Stage) -> Layout:
    """Rows and columns of a stage's body, in the order that its tensors have in memory. Raises: NotCovered."""
    return lay_out(*in_memory_order(graph, body, stage))


def full_loads(graph: Graph, body: Body, layout: Layout) -> list[Tensor]:
    """What is read of as many elements as the rows have, at the full shapes."""
    elements = math.prod(size[0] for size in (layout.rows, layout.cols) if size)
    return [graph.values[value] for value in body.loads if graph.values[value].numel() == elements]


def _parts(shape: tuple[Size, ...], dims: tuple[int, ...]) -> tuple[Size, ...]:
    """See `Layout.parts`. Raises: NotCovered for another pattern of dimensions."""
    start = dims[0]
    if dims == tuple(range(start, dims[-1] + 1)):
        return (), (), product(shape[:start]), product(shape[start : dims[-1] + 1]), product(shape[dims[-1] + 1 :])
    lead = next(axis for axis in range(start, len(shape)) if axis not in dims)
    behind = tuple(dim for dim in dims if dim > lead)
    inner = product(shape[behind[-1] + 1 :])
    if behind != tuple(range(behind[0], behind[-1] + 1)) or (start > 0 and not is_one(inner)):
        raise NotCovered("a reduction over dimensions that are neither neighbours nor around the others")
    before = product(shape[:start]) if start > 0 else ()
    return (
        before,
        product(shape[start:lead]),
        product(shape[lead : behind[0]]),
        product(shape[behind[0] : behind[-1] + 1]),
        inner,
    )


def loops(body: Body, layout: Layout) -> dict[int, tuple[list[Node], list[Node]]]:
    """Loops over a row that is not held in registers, by the number of reductions they wait for.

    Returns: for each the reductions that it makes and the full results that it can write.
    """
    found: dict[int, tuple[list[Node], list[Node]]] = {}
    for node in body.nodes:
        place, level = layout.place[node.name], layout.level[node.name]
        if place == "row" and node.kind == "reduce":
            found.setdefault(level - 1, ([], []))[0].append(node)
        elif place == "full" and node.name in body.stores:
            found.setdefault(level, ([], []))[1].append(node)
    return found


def why_not_split(body: Body, layout: Layout) -> str | None:
    """Why rows cannot be cut among programs, or None if they can: all reductions must be ready after one pass."""
    if "total" in layout.place.values() or any(
        layout.place[node.name] == "row" and layout.level[node.name] > 1 for node in body.nodes
    ):
        return "rows can be split only where no reduction waits for another"
    return None


def _place(graph: Graph, body: Body, layout: Layout, node: Node) -> None:
    reads = (
        node.reads()[:1] if node.kind == "reduce" else node.reads()
    )  # a sum of deviations does not wait for the mean
    level = max((layout.level.get(read, 0) for read in reads), default=0)
    sizes = tuple(size for size in (layout.rows, layout.cols) if size)
    if node.kind == "reduce":
        operand = node.reads()[0]
        place = layout.place.get(operand) or _place_of(graph.values[operand].shape, layout, sizes)
        shape = shape_of(graph, body, operand)
        if place == "full" and _is_columns(shape, node.dims, layout):
            layout.place[node.name] = "row"
        elif place == "row" and node.operation == "sum" and same(product(node.shape), ()):
            layout.place[node.name] = "total"
        else:
            raise NotCovered(f"{node.name} reduces over other rows")
        top = top_of_exponentials(body, node) if layout.place[node.name] == "row" else None
        if top is not None and layout.place[top] == "row" and top not in layout.online.values():
            layout.online[node.name] = top
            level -= 1
        layout.level[node.name] = level + 1
        return
    places = {layout.place[read] for read in node.reads() if read in layout.place}
    place = "total" if places == {"total"} else _place_of(node.shape, layout, sizes)
    if "total" in places and place != "total":
        raise NotCovered(f"{node.name} spreads a total over rows again")
    if place == "elsewhere" and (node.kind == "reduce" or node.name in body.stores):
        raise NotCovered(f"{node.name} is neither one a row nor one an element")
    layout.place[node.name], layout.level[node.name] = place, level
    if node.kind == "map" and place == "full":
        _check_broadcast(body, layout, node)


def _place_of(shape: tuple[Size, ...], layout: Layout, sizes: tuple[Size, ...]) -> str:
    count = product(shape)
    if same(count, product(sizes)):
        return "full"
    return "row" if same(count, layout.rows) else "elsewhere"


def _is_columns(shape: tuple[Size, ...], dims: tuple[int, ...], layout: Layout) -> bool:
    return all(same(mine, theirs) for mine, theirs in zip(_parts(shape, dims), layout.parts, strict=True))


def _check_broadcast(body: Body, layout: Layout, node: Node) -> None:
    """A row value read by a full node must stand where the rows are and have size 1 over the columns. One that does not is
    of as many elements as there are rows by chance, as where a matrix is square: it is computed where it is needed.

    Raises: NotCovered where it hangs on a reduction, or is a result.
    """
    for item in node.operands:
        if isinstance(item, str) and layout.place.get(item) == "row":
            reason = _why_elsewhere(body, layout, node, item)
            if reason and not _moved_elsewhere(body, layout, item):
                raise NotCovered(reason)


def _why_elsewhere(body: Body, layout: Layout, node: Node, item: str) -> str:
    """Why an operand of a full node that has as many elements as there are rows is none of the rows; "" where it is."""
    operand = body.node(item)
    assert operand is not None
    lead = len(node.shape) - len(operand.shape)
    ranges = split(node.shape, tuple(Group("", part, "") for part in layout.parts))
    if ranges is None:
        return f"{node.name} reads {item} under a shape that mixes rows and columns"
    for axis, size in enumerate(node.shape):
        own = operand.shape[axis - lead] if axis >= lead else None
        in_columns = any(start <= axis < stop for start, stop in (ranges[1], ranges[3]))
        if in_columns and own is not None and not is_one(own) and not is_one(size):
            return f"{node.name} reads {item} along the columns"
        if not in_columns and not is_one(size) and (own is None or own != size):
            return f"{node.name} reads {item} along other rows"
    return ""


def _moved_elsewhere(body: Body, layout: Layout, item: str) -> bool:
    """Note that a node, and what it is made of, is computed where an element of it is needed; False where it cannot be."""
    made = [node for node in body.nodes if node.name in leading_to(body, [item])]
    if any(layout.level[node.name] or node.name in body.stores or node.kind not in MOVABLE for node in made):
        return False
    layout.place.update({node.name: "elsewhere" for node in made if layout.place[node.name] == "row"})
    return True


MOVABLE = ("map", "view", "index")
"""Kinds of nodes whose elements can be computed at any place."""
