"""totals: a sum over all elements beside reductions over rows, as a sum over each row and then over the rows.

Proof. Addition may be done in any order, up to rounding.

What it is for: a loss is the mean of all elements of something that a softmax or a norm of each row makes. By itself the
sum has no rows; taken by rows, it comes out of the kernel that has the row at hand.
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, Node, shape_of
from mtmc.rewrite.graph import Graph

_KINDS = ("map", "view", "index", "reduce")


def by_rows(graph: Graph, body: Body) -> Body:
    """The body with its total sums taken row by row, where other reductions have rows of that shape."""
    if any(node.kind not in _KINDS for node in body.nodes):
        return body
    rows = {
        shape_of(graph, body, node.operands[0]): node.dims
        for node in body.nodes
        if node.kind == "reduce" and not _is_total(graph, body, node)
    }
    nodes = list[Node]()
    for node in body.nodes:
        dims = rows.get(shape_of(graph, body, node.operands[0])) if node.kind == "reduce" else None
        if dims is None or node.operation != "sum" or not _is_total(graph, body, node):
            nodes.append(node)
            continue
        shape = shape_of(graph, body, node.operands[0])
        left = tuple(size for axis, size in enumerate(shape) if axis not in dims)
        name = _fresh(body, f"{node.name}_of_rows")
        nodes.append(replace(node, name=name, shape=left, dims=dims))
        nodes.append(replace(node, operands=(name,), dims=tuple(range(len(left)))))
    return replace(body, nodes=tuple(nodes))


def _is_total(graph: Graph, body: Body, node: Node) -> bool:
    """Whether a reduction is over all dimensions of more than one."""
    return (
        node.kind == "reduce" and len(node.dims) == len(shape_of(graph, body, node.operands[0])) > 1 and not node.shape
    )


def _fresh(body: Body, name: str) -> str:
    while body.node(name) is not None or name in body.loads:
        name += "_"
    return name
