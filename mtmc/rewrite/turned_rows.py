"""turned_rows: what rows are made into, with the rows in another order then, as work on rows in that order.

Proof. Work on each element alone, and reductions over the last dimensions, do the same in whatever order rows come.

What it is for: the heads of attention or of a recurrence are normed one by one, heads first, and then stand behind each
other token by token, where a gate multiplies them. A kernel over rows knows what a reduction makes at its own place alone:
so it goes over rows in the order in which they are written, and asks for what it reads at its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mtmc.rewrite.body import Body, Index, Node, Operand, Trailing, compute_kind, leading_to
from mtmc.rewrite.graph import Graph, Shape, is_one
from mtmc.rewrite.index_maps import Expanded, Permuted

_KINDS = ("map", "view", "index", "reduce")


def turned_rows(graph: Graph, body: Body) -> Body:
    """The body whose reductions come after the permutations of what they make, where the last dimension stays the last and
    all that is made of them is in that order; else the body itself."""
    if any(node.kind not in _KINDS for node in body.nodes):
        return body
    for node in body.nodes:
        if node.kind == "index" and isinstance(node.index, Permuted):
            made = _Turning(graph, body, node, node.index.dims).nodes()
            if made is not None:
                return turned_rows(graph, replace(body, nodes=made))
    return body


class _Turning:
    """The rows that a permutation puts in another order, on their way there."""

    def __init__(self, graph: Graph, body: Body, last: Node, order: tuple[int, ...]) -> None:
        self._graph, self._body, self._last, self._order = graph, body, last, order
        self._names = leading_to(body, [last.reads()[0]])
        self._moved: dict[str, str] = {}
        """Operands from outside -> the nodes that have them in the new order."""

    def nodes(self) -> tuple[Node, ...] | None:
        """All nodes of the body; None where rows cannot be in another order."""
        mine = [node for node in self._body.nodes if node.name in self._names]
        if not any(node.kind == "reduce" for node in mine) or not all(map(self._can_turn, mine)):
            return None
        found: list[Node] = []
        for node in self._body.nodes:
            if node in mine:
                operands = tuple(self._operand(item, found) for item in node.operands)
                dims = tuple(sorted(self._order.index(dim) for dim in node.dims))
                found.append(replace(node, operands=operands, shape=self._in_order(node.shape), dims=dims))
            elif node == self._last:
                found.append(replace(node, kind="view", operation="", index=None))
            else:
                found.append(node)
        return tuple(found)

    def _can_turn(self, node: Node) -> bool:
        """Whether a node can have its rows in the new order: it is read for that alone."""
        rank = len(self._order)
        readers = [each for each in self._body.nodes if node.name in each.reads() and each.name not in self._names]
        alone = readers in ([], [self._last]) and node.name not in self._body.stores
        repeats = node.kind == "index" and isinstance(node.index, Expanded)
        if not alone or len(node.shape) != rank or (node.kind not in ("map", "reduce") and not repeats):
            return False
        outside = [item for item in node.reads() if self._body.node(item) is None]
        if any(isinstance(item, Trailing) for item in node.operands) or not all(map(self._fits, outside)):
            return False
        return node.kind != "reduce" or (self._order[-1] == rank - 1 and rank - 1 in node.dims)

    def _fits(self, value: str) -> bool:
        return value in self._graph.values and len(self._graph.values[value].shape) <= len(self._order)

    def _operand(self, item: Operand, found: list[Node]) -> Operand:
        """An operand in the new order. found: nodes so far, to which those are added that have it so."""
        rank = len(self._order)
        if isinstance(item, Index):
            return Index(rank - self._order.index(rank - item.axis))
        if not isinstance(item, str) or self._body.node(item) is not None:
            return item
        shape = self._padded(self._graph.values[item].shape)
        if self._in_order(shape) == shape and all(map(is_one, self._others(shape))):
            return item
        if item not in self._moved:
            compute, source = compute_kind(self._graph.values[item]), item
            if len(shape) > len(self._graph.values[item].shape):
                source = self._fresh(f"{item}_padded", found)
                found.append(Node(source, "view", "", (item,), shape, compute, flops=0))
            name = self._moved[item] = self._fresh(f"{item}_turned", found)
            turned, index = self._in_order(shape), Permuted(self._order)
            found.append(Node(name, "index", "permute", (source,), turned, compute, flops=0, index=index))
        return self._moved[item]

    def _others(self, shape: Shape) -> Sequence[tuple[int, ...]]:
        """The sizes of the dimensions that stand elsewhere in the new order."""
        return [size for axis, size in enumerate(shape) if self._order[axis] != axis]

    def _padded(self, shape: Shape) -> Shape:
        return (*((1,) * len(self._graph.variants) for _ in range(len(self._order) - len(shape))), *shape)

    def _in_order(self, shape: Shape) -> Shape:
        return tuple(shape[dim] for dim in self._order)

    def _fresh(self, name: str, found: Sequence[Node]) -> str:
        taken = {*self._body.loads, *(node.name for node in (*self._body.nodes, *found)), *self._graph.values}
        while name in taken:
            name += "_"
        return name
