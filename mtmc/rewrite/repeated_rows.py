"""repeated_rows: reductions over rows that others broadcast, as reductions over each of those.

Proof. What is the same for all of some leading indices is so when it is worked out for each of them.

What it is for: a table of decays that is normalized by rows, a mask whose rows are counted, weights that are normalized and
then multiply what each sequence of a batch has. One kernel goes over the larger rows, works out the small ones' numbers
as it goes, and neither writes nor reads the table.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from mtmc.rewrite.body import Body, Node, broadcast, compute_kind, leading_to, shape_of
from mtmc.rewrite.graph import Graph, Shape, is_one, product
from mtmc.rewrite.index_maps import Expanded

_KINDS = ("map", "view", "index", "reduce")


def repeated_rows(graph: Graph, body: Body) -> Body:
    """The body with its smaller rows as large as the largest rows, or results, where they differ by leading dimensions alone
    and nothing of their size is a result; else the body itself."""
    reductions = [node for node in body.nodes if node.kind == "reduce"]
    if not reductions or any(node.kind not in _KINDS for node in body.nodes):
        return body
    rows = [shape_of(graph, body, node.operands[0]) for node in reductions]
    results = [graph.values[value].shape for value in body.stores]
    largest = max([*rows, *results], key=lambda shape: product(shape) or (0,))
    small = [node for node, shape in zip(reductions, rows, strict=True) if shape != largest]
    columns = {_from_last(node.dims, shape) for node, shape in zip(reductions, rows, strict=True)}
    if not small or len(columns) > 1 or not all(_repeats(shape, largest, *columns) for shape in rows):
        return body
    nodes = _Widening(graph, body, largest).nodes(small)
    return body if nodes is None else replace(body, nodes=nodes)


def _from_last(dims: tuple[int, ...], shape: Shape) -> tuple[int, ...]:
    """Dimensions, counted from the last (-1)."""
    return tuple(dim - len(shape) for dim in dims)


def _repeats(shape: Shape, largest: Shape, columns: tuple[int, ...]) -> bool:
    """Whether rows are the largest ones, or the same for all of some leading indices of these, which are no columns."""
    missing = _missing(shape, largest)
    return shape == largest or (missing is not None and all(dim + len(largest) >= missing for dim in columns))


def _missing(shape: Shape, largest: Shape) -> int | None:
    """How many leading dimensions of the largest shape another one has not, or has with size 1; None where they differ by
    more."""
    kept = _kept(shape)
    missing = len(largest) - len(kept)
    return missing if missing > 0 and largest[missing:] == kept else None


def _kept(shape: Shape) -> Shape:
    """A shape without the leading dimensions of size 1."""
    return shape[len(list(takewhile(is_one, shape))) :]


class _Widening:
    """Nodes on their way to a larger shape."""

    def __init__(self, graph: Graph, body: Body, largest: Shape) -> None:
        self._graph, self._body, self._largest = graph, body, largest
        self._wider: dict[str, Shape] = {}
        """New shapes of nodes that have one."""

    def nodes(self, small: list[Node]) -> tuple[Node, ...] | None:
        """All nodes, with these reductions over the largest rows; None where one cannot be done so."""
        leading = leading_to(self._body, (str(node.operands[0]) for node in small))
        found: list[Node] = []
        for node in self._body.nodes:
            made = self._node(node, node.name in leading, node in small, found)
            if made is None or (made.shape != node.shape and node.name in self._body.stores):
                return None
            if made.shape != node.shape:
                self._wider[node.name] = made.shape
            found.append(made)
        return tuple(found)

    def _node(self, node: Node, leads: bool, small: bool, found: list[Node]) -> Node | None:
        changed = any(read in self._wider for read in node.reads())
        if node.kind == "map":
            shape = broadcast([node.shape, *(self._wider[read] for read in node.reads() if read in self._wider)])
            return replace(node, shape=self._largest if leads and self._is_small(node) else shape)
        if node.kind == "reduce":
            return self._reduction(node, found) if changed or small else node
        if not changed:
            return node
        return self._view(node) if node.kind == "view" else None

    def _is_small(self, node: Node) -> bool:
        return _missing(node.shape, self._largest) is not None

    def _reduction(self, node: Node, found: list[Node]) -> Node:
        """The reduction over as many more rows, of an operand from outside by way of a node that repeats it."""
        operand = str(node.operands[0])
        before = shape_of(self._graph, self._body, operand)
        after = self._wider.get(operand, before)
        if self._body.node(operand) is None or operand not in self._wider:
            repeats = self._repeated(operand)
            found.append(repeats)
            operand, after = repeats.name, self._largest
        dims = tuple(dim + len(after) - len(before) for dim in node.dims)
        keeps, ones = len(node.shape) == len(before), (1,) * len(self._graph.variants)
        shape = tuple(ones if axis in dims else size for axis, size in enumerate(after) if keeps or axis not in dims)
        return replace(node, operands=(operand, *node.operands[1:]), shape=shape, dims=dims)

    def _repeated(self, value: str) -> Node:
        node = self._body.node(value)
        compute = compute_kind(self._graph.values[value]) if node is None else node.compute
        name, taken = f"{value}_repeated", {*self._body.loads, *(each.name for each in self._body.nodes)}
        while name in taken or name in self._graph.values:
            name += "_"
        return Node(name, "index", "expand", (value,), self._largest, compute, flops=0, index=Expanded())

    def _view(self, node: Node) -> Node | None:
        """The view with the new leading dimensions in front; None where it does more with those of size 1 than keep them."""
        read = node.reads()[0]
        before, after = shape_of(self._graph, self._body, read), self._wider[read]
        ones = len(before) - len(_kept(before))
        added = len(after) - (len(before) - ones)
        if not all(map(is_one, node.shape[:ones])):
            return None
        return replace(node, shape=(*after[:added], *node.shape[ones:]))
