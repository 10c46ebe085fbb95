"""permuted_body: a body that goes over memory whose channels lie last, with its nodes and operands in that order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Operand, Part, Trailing, shape_of
from mtmc.rewrite.graph import Graph, Shape, Tensor, is_one, last_channels
from mtmc.rewrite.index_maps import Joined, Sliced
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.channels_last import (
    FORMATS,
    MOVED,
    channels_last_values,
    full_shapes,
    groups_channels,
    is_channels_last,
    is_of_a_group,
)


def in_memory_order(graph: Graph, body: Body, stage: Stage) -> tuple[Graph, Body]:
    """Graph and body in the order that the stage's tensors have in memory. Raises: NotCovered, see `to_channels_last`."""
    return to_channels_last(graph, body) if is_channels_last(stage) else (graph, body)


def to_channels_last(graph: Graph, body: Body) -> tuple[Graph, Body]:
    """The body with channels as the last dimension, and a graph that knows its operands so.

    Operands of the full shapes are taken to lie channels last. Raises: NotCovered where something else cannot be read in
    that order, or a result would lie in another one.
    """
    full = full_shapes(graph, body)
    rank = len(full[0])
    if rank not in FORMATS or any(len(shape) != rank for shape in full):
        raise NotCovered(f"{rank} dimensions have no channels last")
    if not set(channels_last_values(graph, body)) & set(body.loads):
        raise NotCovered("no operand has the full shape")
    grouped = (node.shape for node in body.nodes if node.kind == "view" and groups_channels(node.shape, full[0]))
    permuting = _Permuting(graph, body, full, rank, next(grouped, ())[1:3], aside=_beside_reduced(body, rank))
    nodes = tuple(permuting.node(node) for node in body.nodes)
    for value in body.stores:
        permuting.store(value)
    parts = tuple(_last_part(part, rank) if part.value in permuting.values else part for part in body.parts)
    return graph.knowing(permuting.values), replace(body, nodes=nodes, parts=parts)


def _beside_reduced(body: Body, rank: int) -> frozenset[str]:
    """Maps of fewer dimensions that read values from outside alone, for what is left of a reduction: running statistics."""
    reduced, aside = set[str](), set[str]()
    for node in body.nodes:
        if node.kind == "reduce" or not reduced.isdisjoint(node.reads()):
            reduced.add(node.name)
    few = [node for node in body.nodes if node.kind == "map" and len(node.shape) < rank]
    left = {node.name for node in few} & reduced
    for node in reversed(few):
        readers = {each.name for each in body.nodes if node.name in each.reads()}
        if node.name not in reduced and readers and readers <= left | aside:
            aside.add(node.name)
    return frozenset(aside)


def _last_part(part: Part, rank: int) -> Part:
    """A part of a larger tensor that lies channels last."""
    order = last_channels(rank)
    dim = order.index(part.dim)
    return Part(part.value, dim, order[dim - 1])


@dataclass
class _Permuting:
    """A body on its way to channels last.

    groups: sizes in which channels are seen by groups, in all nodes and operands then; () where they are not. values: what
    is then known of values from outside. below: nodes from which a reduction has taken dimensions; they stay as they are,
    since what is left of the dimensions is in the same order. aside: nodes for these alone, which stay as they are too.
    """

    graph: Graph
    body: Body
    full: tuple[Shape, ...]
    rank: int
    groups: Shape = ()
    values: dict[str, Tensor] = field(default_factory=dict)
    below: set[str] = field(default_factory=set)
    aside: frozenset[str] = frozenset()

    def node(self, node: Node) -> Node:
        """The node, permuted. Raises: NotCovered."""
        if len(node.shape) == self.rank + 1:
            return self._grouped(node)
        if len(node.shape) > self.rank:
            raise NotCovered(f"{node.name} has more dimensions than what lies channels last")
        if node.kind == "map":
            return self._map(node)
        if node.kind == "view":
            return self._view(node)
        if node.kind == "reduce":
            return self._reduction(node)
        if node.kind == "index" and isinstance(node.index, MOVED) and len(node.shape) == self.rank and not self.groups:
            return self._moved(node, node.index)
        if node.kind != "window" or node.operation == "weighted sum":
            raise NotCovered(f"{node.name} is not done channels last")
        assert node.window is not None
        operands = (self._operand(node.operands[0]), *node.operands[1:])  # filters stay as they are
        window = replace(node.window, last=2 if self.groups else 1)
        return replace(node, operands=operands, shape=self._last(node.shape), window=window)

    def _grouped(self, node: Node) -> Node:
        """A view of a full tensor with its channels in groups, work on elements seen so or on a number a group, or what a
        group comes to. Raises: NotCovered."""
        read = node.operands[0]
        if node.kind == "view" and isinstance(read, str) and groups_channels(node.shape, self.full[0]):
            if shape_of(self.graph, self.body, read) not in self.full:
                raise NotCovered(f"{node.name} sees the elements in another order")
            return replace(node, operands=(self._operand(read),), shape=self._in_groups(node.shape))
        if node.kind == "reduce" and node.dims == tuple(range(2, self.rank + 1)) and self._is_of_groups(node):
            if node.operation.startswith("arg"):
                raise NotCovered(f"{node.name} is a place, which is another one in this order")
            dims = (*range(1, self.rank - 1), self.rank)
            return replace(node, dims=dims, shape=self._in_groups(node.shape))
        a_group, of_groups = is_of_a_group(node.shape), self._is_of_groups(node)
        if node.kind == "view" and a_group and of_groups:
            return replace(node, shape=self._in_groups(node.shape))
        if node.kind == "map" and of_groups and (a_group or groups_channels(node.shape, self.full[0])):
            for read in node.reads():
                if self.body.node(read) is None:
                    tensor = self.graph.values[read]
                    self._know(read, replace(tensor, shape=self._in_groups(tensor.shape)))
            return replace(node, shape=self._in_groups(node.shape))
        raise NotCovered(f"{node.name} is other work on groups of channels")

    def _is_of_groups(self, node: Node) -> bool:
        """Whether all that a node reads is seen in groups of channels, or is a number for each group."""
        for read in node.reads():
            if len(shape_of(self.graph, self.body, read)) != self.rank + 1:
                return False
            tensor = self.graph.values[read] if self.body.node(read) is None else None
            if tensor is not None and not (tensor.contiguous and is_of_a_group(tensor.shape)):
                return False
        return True

    def _in_groups(self, part: Shape) -> Shape:
        """A shape [N, groups, channels of each, ...], channels last."""
        first, groups, channels, *places = part
        return (first, *places, groups, channels)

    def store(self, value: str) -> None:
        """See that a result lies as the others expect it. Raises: NotCovered."""
        tensor = self.graph.values[value]
        if value in self.below:
            return
        if len(tensor.shape) == self.rank + 1 and is_of_a_group(tensor.shape):
            self.values[value] = replace(tensor, shape=self._in_groups(tensor.shape))
            return
        if tensor.shape not in self.full and not self._in_order(tensor.shape):
            raise NotCovered(f"{value} would lie in another order")
        self.values[value] = Tensor(self._last(tensor.shape), tensor.dtype, True)

    def _map(self, node: Node) -> Node:
        below = {read in self.below for read in node.reads() if self.body.node(read) is not None}
        below |= {True} if node.name in self.aside else set()
        if True not in below:
            operands = tuple(self._operand(item) for item in node.operands)
            return replace(node, operands=operands, shape=self._last(node.shape))
        if False in below or len(node.shape) == self.rank:
            raise NotCovered(f"{node.name} reads values with and without the dimensions that are reduced")
        for read in node.reads():
            if self.body.node(read) is None:
                self._know(read, self.graph.values[read])
        self.below.add(node.name)
        return node

    def _view(self, node: Node) -> Node:
        found = self.body.node(node.reads()[0])
        if found is not None and node.shape in self.full and groups_channels(found.shape, node.shape):
            return replace(node, shape=self._last(node.shape))
        if found is None or not (found.name in self.below or self._in_order(found.shape)):
            raise NotCovered(f"{node.name} sees the elements in another order")
        if len(node.shape) < self.rank:
            self.below.add(node.name)
            return node
        if not self._in_order(node.shape):
            raise NotCovered(f"{node.name} sees the elements in another order")
        return replace(node, shape=self._last(node.shape))

    def _moved(self, node: Node, index: Joined | Sliced) -> Node:
        """What is joined, or a slice, along the same dimension, wherever that is now. Raises: NotCovered."""
        if set(node.reads()) & self.below:
            raise NotCovered(f"{node.name} reads values without the dimensions that are reduced")
        dim = last_channels(self.rank).index(index.dim)
        operands = tuple(self._operand(item) for item in node.operands)
        dims = (dim,) if node.dims else ()
        return replace(node, operands=operands, shape=self._last(node.shape), dims=dims, index=replace(index, dim=dim))

    def _reduction(self, node: Node) -> Node:
        read = node.operands[0]
        assert isinstance(read, str)
        if read in self.below:
            self.below.add(node.name)
            return node
        inside = self.body.node(read)
        shape = inside.shape if inside else self.graph.values[read].shape
        if len(shape) != self.rank or (node.operation.startswith("arg") and len(node.dims) > 1):
            raise NotCovered(f"{node.name} reduces in another order")
        operands = (self._operand(read), *node.operands[1:])
        dims = tuple(sorted(at for dim in node.dims for at in self._places_of(dim)))
        if len(node.shape) == self.rank:
            return replace(node, operands=operands, dims=dims, shape=self._last(node.shape))
        one = (1,) * len(self.graph.variants)
        if not self._in_order(tuple(one if axis in node.dims else size for axis, size in enumerate(shape))):
            raise NotCovered(f"{node.name} leaves dimensions in another order")
        self.below.add(node.name)
        return replace(node, operands=operands, dims=dims)

    def _places_of(self, dim: int) -> tuple[int, ...]:
        """Where a dimension of a full shape stands, channels last."""
        if dim == 1:
            return (self.rank - 1, self.rank) if self.groups else (self.rank - 1,)
        return (max(dim - 1, 0),)

    def _operand(self, item: Operand) -> Operand:
        """The operand as it is read."""
        if isinstance(item, Index):
            raise NotCovered("work that hangs on the position")
        if not isinstance(item, (str, Trailing)) or (isinstance(item, str) and self.body.node(item) is not None):
            return item
        value, ones = (item.value, item.ones) if isinstance(item, Trailing) else (item, 0)
        tensor = self.graph.values[value]
        whole = (*tensor.shape, *((1,) * len(self.graph.variants),) * ones)
        found = Tensor(self._last(whole), tensor.dtype, True)
        if tensor.shape not in self.full and not (tensor.contiguous and self._in_order(whole)):
            raise NotCovered(f"{value} lies channels first")
        self._know(value, found)
        return value

    def _know(self, value: str, tensor: Tensor) -> None:
        if self.values.setdefault(value, tensor) != tensor:
            raise NotCovered(f"{value} is read in two ways")

    def _padded(self, part: Shape) -> Shape:
        """A shape that broadcasts to the full ones, with as many dimensions."""
        if len(part) > self.rank:
            raise NotCovered("more dimensions than the result has")
        return (*((1,) * len(self.graph.variants),) * (self.rank - len(part)), *part)

    def _last(self, part: Shape) -> Shape:
        """A shape that broadcasts to a full one, channels last."""
        first, channels, *places = self._padded(part)
        seen = (channels,) if not self.groups else (channels, channels) if is_one(channels) else self.groups
        return (first, *places, *seen)

    def _in_order(self, part: Shape) -> bool:
        """Whether the elements of a shape are in the same order with channels last: they differ in them or in places."""
        channels, *places = [not is_one(size) for size in self._padded(part)[1:]]
        return not (channels and any(places))
