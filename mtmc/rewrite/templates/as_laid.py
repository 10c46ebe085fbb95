"""as_laid: results that lie in memory as the reference's do, where those lie in another order than their dimensions.

What torch makes of a tensor that lies channels last mostly lies so, too: neighbours in memory are channels. A kernel that
wrote such a result in the order of its dimensions would read across what is next to each other, and hand on a tensor that
the library's convolutions and products copy. So it goes over the permuted result, and hands out a view of that.

Where a body goes element by element, all its shapes are permuted, and what lies in the same order is read as it comes.
Else the result's elements are asked for at their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mtmc.rewrite.body import Body, Index, Node, Operand, Trailing
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Tensor, is_dense, memory_order
from mtmc.rewrite.index_maps import Permuted


@dataclass(frozen=True)
class Laid:
    """A body and a graph that knows its results permuted. before, after: lines of the launcher around all others, which
    permute what the kernel is given, and turn its results back. results: those that are permuted."""

    graph: Graph
    body: Body
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def as_laid(graph: Graph, body: Body) -> Laid:
    """The body whose results have their dimensions in the order of memory.

    It stays as it is where all lie in the order of their dimensions, or not all in the same other one: what they have in
    common would be worked out at two places.
    """
    placed = {*dict(graph.placed), *(part.value for part in body.parts)}
    orders = {memory_order(graph.values[value]) for value in body.stores}
    shapes = {graph.values[value].shape for value in body.stores}
    order = next(iter(orders))
    if len(orders) != 1 or order is None or len(shapes) != 1 or any(value in placed for value in body.stores):
        return Laid(graph, body)
    back = ", ".join(str(order.index(dim)) for dim in range(len(order)))
    after = tuple(f"{INDENT}{value} = {value}.permute({back})" for value in body.stores)
    turning = _Turning(graph, body, order)
    nodes = turning.nodes()
    if nodes is None:
        return replace(_asked(graph, body, order), after=after, results=body.stores)
    known = graph.knowing({**turning.values, **_turned(graph, body, order)})
    return Laid(known, replace(body, nodes=nodes), tuple(turning.lines.values()), after, body.stores)


def _asked(graph: Graph, body: Body, order: tuple[int, ...]) -> Laid:
    """The body with permutations of its results behind all."""
    names = {value: _free(body, f"{value}_of") for value in body.stores}
    nodes = [_renamed(node, names) for node in body.nodes]
    for value, turned in _turned(graph, body, order).items():
        node = body.node(value)
        assert node is not None
        nodes.append(
            Node(value, "index", "permute", (names[value],), turned.shape, node.compute, index=Permuted(order))
        )
    known = graph.knowing(_turned(graph, body, order))
    return Laid(known, replace(body, nodes=tuple(nodes)))


@dataclass
class _Turning:
    """Maps with their dimensions in another order. values: what is then known of operands from outside. lines: of the
    launcher, which permute those."""

    graph: Graph
    body: Body
    order: tuple[int, ...]
    values: dict[str, Tensor] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    def nodes(self) -> tuple[Node, ...] | None:
        """All of them; None where one is no map, hangs on its place, or reads an operand in two ways."""
        found = []
        for node in self.body.nodes:
            operands = [self._operand(item) for item in node.operands]
            if node.kind != "map" or len(node.shape) > len(self.order) or None in operands:
                return None
            known = tuple(item for item in operands if item is not None)
            found.append(replace(node, operands=known, shape=self._in_order(self._padded(node.shape))))
        return tuple(found)

    def _operand(self, item: Operand) -> Operand | None:
        if isinstance(item, Index):
            return None
        if not isinstance(item, (str, Trailing)) or (isinstance(item, str) and self.body.node(item) is not None):
            return item
        value, ones = (item.value, item.ones) if isinstance(item, Trailing) else (item, 0)
        tensor = self.graph.values[value]
        pads = len(self.order) - len(tensor.shape) - ones
        if self.body.node(value) is not None or pads < 0:
            return None
        one = ((1,) * len(self.graph.variants),)
        shape = self._in_order((*one * pads, *tensor.shape, *one * ones))
        strides = self._in_order((*one * pads, *tensor.lying, *one * ones))
        dense = is_dense(shape, strides)
        text = f"{value}[{'None, ' * pads}...{', None' * ones}]" if pads or ones else value
        text = f"{text}.permute({', '.join(map(str, self.order))}){'.contiguous()' if dense else ''}"
        line, turned = f"{INDENT}{value} = {text}", Tensor(shape, tensor.dtype, dense, () if dense else strides)
        if self.lines.setdefault(value, line) != line:
            return None
        self.values[value] = turned
        return value

    def _padded(self, shape: Shape) -> Shape:
        return (*((1,) * len(self.graph.variants),) * (len(self.order) - len(shape)), *shape)

    def _in_order(self, shape: Shape) -> Shape:
        return tuple(shape[dim] for dim in self.order)


def _turned(graph: Graph, body: Body, order: tuple[int, ...]) -> dict[str, Tensor]:
    """What the kernel makes of each result."""
    tensors = {value: graph.values[value] for value in body.stores}
    return {
        value: Tensor(tuple(tensor.shape[dim] for dim in order), tensor.dtype, True)
        for value, tensor in tensors.items()
    }


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    operands = tuple(names.get(item, item) if isinstance(item, str) else item for item in node.operands)
    return replace(node, name=names.get(node.name, node.name), operands=operands)


def _free(body: Body, name: str) -> str:
    taken = {*(node.name for node in body.nodes), *body.loads, *body.stores}
    while name in taken:
        name += "_"
    return name
