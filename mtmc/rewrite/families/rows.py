"""rows: how a body with reductions lies over rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered, Operand
from mtmc.rewrite.graph import Graph, Size, is_one, product, same
from mtmc.rewrite.space import Group, split


@dataclass(frozen=True)
class Layout:
    """How a body lies over rows and columns.

    outer, cols, inner: sizes. level: node -> number of reductions it waits for.
    place: node -> "full" (an element for each row and column), "row" or "total" (one for all rows).
    """

    outer: Size
    cols: Size
    inner: Size
    level: dict[str, int]
    place: dict[str, str]

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return product(tuple(size for size in (self.outer, self.inner) if size))


def lay_out(graph: Graph, body: Body) -> Layout:
    """Rows and columns of a body. Raises: NotCovered where its reductions are not over the same rows."""
    first = next(node for node in body.nodes if node.kind == "reduce")
    shape = _shape_of(graph, body, first.operands[0])
    start, stop = first.dims[0], first.dims[-1] + 1
    if first.dims != tuple(range(start, stop)):
        raise NotCovered("a reduction over dimensions that are not neighbours")
    outer, cols, inner = product(shape[:start]), product(shape[start:stop]), product(shape[stop:])
    layout = Layout(outer, cols, inner, {}, {})
    for node in body.nodes:
        _place(graph, body, layout, node)
    return layout


def _shape_of(graph: Graph, body: Body, item: Operand) -> tuple[Size, ...]:
    assert isinstance(item, str)
    node = body.node(item)
    return node.shape if node else graph.values[item].shape


def _place(graph: Graph, body: Body, layout: Layout, node: Node) -> None:
    level = max((layout.level.get(read, 0) for read in node.reads()), default=0)
    sizes = tuple(size for size in (layout.outer, layout.cols, layout.inner) if size)
    if node.kind == "reduce":
        operand = node.reads()[0]
        place = layout.place.get(operand) or _place_of(graph.values[operand].shape, layout, sizes)
        shape = _shape_of(graph, body, operand)
        if place == "full" and _is_columns(shape, node.dims, layout):
            layout.place[node.name] = "row"
        elif place == "row" and node.operation == "sum" and same(product(node.shape), ()):
            layout.place[node.name] = "total"
        else:
            raise NotCovered(f"{node.name} reduces over other rows")
        layout.level[node.name] = level + 1
        return
    places = {layout.place[read] for read in node.reads() if read in layout.place}
    place = "total" if places == {"total"} else _place_of(node.shape, layout, sizes)
    if "total" in places and place != "total":
        raise NotCovered(f"{node.name} spreads a total over rows again")
    layout.place[node.name], layout.level[node.name] = place, level
    if node.kind == "map" and place == "full":
        _check_broadcast(body, layout, node)


def _place_of(shape: tuple[Size, ...], layout: Layout, sizes: tuple[Size, ...]) -> str:
    count = product(shape)
    if same(count, product(sizes)):
        return "full"
    if same(count, layout.rows):
        return "row"
    raise NotCovered("a value that is neither one a row nor one an element")


def _is_columns(shape: tuple[Size, ...], dims: tuple[int, ...], layout: Layout) -> bool:
    start, stop = dims[0], dims[-1] + 1
    return (
        dims == tuple(range(start, stop))
        and same(product(shape[:start]), layout.outer)
        and same(product(shape[start:stop]), layout.cols)
        and same(product(shape[stop:]), layout.inner)
    )


def _check_broadcast(body: Body, layout: Layout, node: Node) -> None:
    """A row value read by a full node must stand where the rows are and have size 1 over the columns."""
    for item in node.operands:
        if not isinstance(item, str) or layout.place.get(item) != "row":
            continue
        operand = body.node(item)
        assert operand is not None
        lead = len(node.shape) - len(operand.shape)
        groups = (Group("", layout.outer, ""), Group("", layout.cols, ""), Group("", layout.inner, ""))
        ranges = split(node.shape, groups)
        if ranges is None:
            raise NotCovered(f"{node.name} reads {item} under a shape that mixes rows and columns")
        for axis, size in enumerate(node.shape):
            own = operand.shape[axis - lead] if axis >= lead else None
            in_columns = ranges[1][0] <= axis < ranges[1][1]
            if in_columns and own is not None and not is_one(own) and not is_one(size):
                raise NotCovered(f"{node.name} reads {item} along the columns")
            if not in_columns and not is_one(size) and (own is None or own != size):
                raise NotCovered(f"{node.name} reads {item} along other rows")
