"""channels_last: elementwise work on tensors whose channels lie next to each other in memory.

A kernel that walks over elements in the order of memory does not care what the order means, as long as all its tensors of
the full shape have the same. What broadcasts is read by the place in that order: the shapes of the kernel's nodes and
operands are turned, channels last, and the pointwise family prints the turned body as it prints any other.
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Operand, Trailing
from mtmc.rewrite.graph import Graph, Shape, Tensor, is_one
from mtmc.rewrite.plan import Stage

FORMATS = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
"""Memory formats by the number of dimensions."""


def is_last(stage: Stage) -> bool:
    """Whether a stage's tensors of the full shape lie channels last."""
    return dict(stage.schedule).get("layout") == "channels_last"


def turned(graph: Graph, body: Body) -> tuple[Graph, Body]:
    """The body with channels as the last dimension, and a graph that knows its operands so.

    Operands of the full shape are taken to lie channels last. Raises: NotCovered where something else cannot be read in
    that order.
    """
    shape = graph.values[body.stores[0]].shape
    if len(shape) not in FORMATS:
        raise NotCovered(f"{len(shape)} dimensions have no channels last")
    values: dict[str, Tensor] = {}
    nodes = tuple(_turned_node(graph, body, node, shape, values) for node in body.nodes)
    for value in body.stores:
        values[value] = Tensor(_last(graph.values[value].shape, shape), graph.values[value].dtype, True)
    return replace(graph, values={**graph.values, **values}), replace(body, nodes=nodes)


def full_loads(graph: Graph, body: Body) -> list[str]:
    """The operands of the full shape."""
    shape = graph.values[body.stores[0]].shape
    return [value for value in body.loads if graph.values[value].shape == shape]


def _turned_node(graph: Graph, body: Body, node: Node, shape: Shape, values: dict[str, Tensor]) -> Node:
    if node.kind != "map":
        raise NotCovered(f"{node.name} is no elementwise work")
    operands = tuple(_turned_operand(graph, body, item, shape, values) for item in node.operands)
    return replace(node, operands=operands, shape=_last(node.shape, shape))


def _turned_operand(graph: Graph, body: Body, item: Operand, shape: Shape, values: dict[str, Tensor]) -> Operand:
    """The operand as it is read; `values` gets what is known of it then."""
    if isinstance(item, Index):
        raise NotCovered("work that hangs on the position")
    if not isinstance(item, (str, Trailing)) or (isinstance(item, str) and body.node(item) is not None):
        return item
    value, ones = (item.value, item.ones) if isinstance(item, Trailing) else (item, 0)
    tensor = graph.values[value]
    whole = (*tensor.shape, *((1,) * len(graph.variants),) * ones)
    found = Tensor(_last(whole, shape), tensor.dtype, True)
    if tensor.shape != shape:
        channels, *places = [not is_one(size) for size in _padded(whole, shape)[1:]]
        if not tensor.contiguous or (channels and any(places)):
            raise NotCovered(f"{value} lies channels first")
    if values.setdefault(value, found) != found:
        raise NotCovered(f"{value} is read in two ways")
    return value


def _padded(part: Shape, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`, with as many dimensions."""
    if len(part) > len(shape):
        raise NotCovered("more dimensions than the result has")
    ones = (1,) * len(shape[0])
    return (*(ones,) * (len(shape) - len(part)), *part)


def _last(part: Shape, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`, channels last."""
    first, channels, *places = _padded(part, shape)
    return (first, *places, channels)
