"""channels_last: kernels over tensors whose channels lie next to each other in memory.

A kernel that loops over elements in the order of memory does not care what the order means, as long as all its tensors of
the full shape have the same. What broadcasts is read by the place in that order: the shapes of the kernel's nodes and
operands are permuted, channels last, and the dimensions of reductions with them; then the template prints the permuted body
as it prints any other. A reduction over the channels becomes one over the last dimension, one over space keeps the channels
as neighbours. Values with one element a channel, or one a position, lie the same either way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Operand, Trailing
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Tensor, Varying, is_one
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.templates.writer import Writer, allocation, contiguous_lines

FORMATS = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
"""Memory formats by the number of dimensions."""


def is_channels_last(stage: Stage) -> bool:
    """Whether a stage's tensors of the full shape lie channels last."""
    return dict(stage.schedule).get("layout") == "channels_last"


def full_shapes(graph: Graph, body: Body) -> tuple[Shape, ...]:
    """The shapes whose tensors lie channels last: of what is reduced, of windows' operand and result, else of results."""
    for node in body.nodes:
        if node.kind in ("window", "reduce") and isinstance(node.operands[0], str):
            inside = body.node(node.operands[0])
            operand = inside.shape if inside else graph.values[node.operands[0]].shape
            return (operand, node.shape) if node.kind == "window" else (operand,)
    return (graph.values[body.stores[0]].shape,)


def channels_last_values(graph: Graph, body: Body) -> tuple[str, ...]:
    """The operands and results that lie channels last where the stage does."""
    full = full_shapes(graph, body)
    return tuple(value for value in (*body.loads, *body.stores) if graph.values[value].shape in full)


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
    permuting = _Permuting(graph, body, full, rank)
    nodes = tuple(permuting.node(node) for node in body.nodes)
    for value in body.stores:
        permuting.store(value)
    return replace(graph, values={**graph.values, **permuting.values}), replace(body, nodes=nodes)


def handed_over(
    graph: Graph, body: Body, stage: Stage, writer: Writer, scope: Scope, spare: dict[str, Varying]
) -> list[str]:
    """The launcher's lines that see to the order in memory of what it is given, and allocate results in theirs."""
    last = channels_last_values(graph, body) if is_channels_last(stage) else ()
    lines = permuting_lines(graph, body, writer) if last else []
    lines += contiguous_lines(writer)
    for value in body.stores:
        if value not in last:
            lines.append(allocation(graph, body, value, scope, spare))
            continue
        dtype, shape = graph.values[value].dtype, graph.values[value].shape
        alike = [load for load in body.loads if load in last and graph.values[load].shape == shape]
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


@dataclass
class _Permuting:
    """A body on its way to channels last.

    values: what is then known of values from outside. below: nodes from which a reduction has taken dimensions; they stay
    as they are, since what is left of the dimensions is in the same order.
    """

    graph: Graph
    body: Body
    full: tuple[Shape, ...]
    rank: int
    values: dict[str, Tensor] = field(default_factory=dict)
    below: set[str] = field(default_factory=set)

    def node(self, node: Node) -> Node:
        """The node, permuted. Raises: NotCovered."""
        if len(node.shape) > self.rank:
            raise NotCovered(f"{node.name} has more dimensions than what lies channels last")
        if node.kind == "map":
            return self._map(node)
        if node.kind == "view":
            return self._view(node)
        if node.kind == "reduce":
            return self._reduction(node)
        if node.kind != "window" or node.operation not in ("max", "mean", "sum"):
            raise NotCovered(f"{node.name} is not done channels last")
        return replace(node, operands=(self._operand(node.operands[0]),), shape=self._last(node.shape))

    def store(self, value: str) -> None:
        """See that a result lies as the others expect it. Raises: NotCovered."""
        tensor = self.graph.values[value]
        if value in self.below:
            return
        if tensor.shape not in self.full and not self._in_order(tensor.shape):
            raise NotCovered(f"{value} would lie in another order")
        self.values[value] = Tensor(self._last(tensor.shape), tensor.dtype, True)

    def _map(self, node: Node) -> Node:
        below = {read in self.below for read in node.reads() if self.body.node(read) is not None}
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
        if found is None or not (found.name in self.below or self._in_order(found.shape)):
            raise NotCovered(f"{node.name} sees the elements in another order")
        if len(node.shape) < self.rank:
            self.below.add(node.name)
            return node
        if not self._in_order(node.shape):
            raise NotCovered(f"{node.name} sees the elements in another order")
        return replace(node, shape=self._last(node.shape))

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
        dims = tuple(sorted({0: 0, 1: self.rank - 1}.get(dim, dim - 1) for dim in node.dims))
        if len(node.shape) == self.rank:
            return replace(node, operands=operands, dims=dims, shape=self._last(node.shape))
        one = (1,) * len(self.graph.variants)
        if not self._in_order(tuple(one if axis in node.dims else size for axis, size in enumerate(shape))):
            raise NotCovered(f"{node.name} leaves dimensions in another order")
        self.below.add(node.name)
        return replace(node, operands=operands, dims=dims)

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
        return (first, *places, channels)

    def _in_order(self, part: Shape) -> bool:
        """Whether the elements of a shape are in the same order with channels last: they differ in them or in places."""
        channels, *places = [not is_one(size) for size in self._padded(part)[1:]]
        return not (channels and any(places))
