"""written_out: reductions over a few elements that lie apart, as so many steps on elements.

Proof. It is the definition, from the first element to the last.

What it is for: the sum of what a token's few experts gave, of two halves, of the corners of a cell. By rows, a program holds
a few columns of which each lies in a line of its own. Element by element, neighbours of the result read neighbours, and such
a sum ends no fusion of elementwise work.
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, Node, shape_of
from mtmc.rewrite.graph import Graph, Shape, is_one, product, same
from mtmc.rewrite.index_maps import Selected, Sliced

MOST = 16
"""Elements that are reduced."""
_KINDS = ("map", "view", "index", "reduce")
_NAN = "propagate_nan=tl.PropagateNan.ALL"
_STEPS = {
    "sum": "{} + {}",
    "prod": "{} * {}",
    "amax": f"tl.maximum({{}}, {{}}, {_NAN})",
    "amin": f"tl.minimum({{}}, {{}}, {_NAN})",
}


def written_out(graph: Graph, body: Body) -> Body:
    """The body with its reductions written out, where all of them are of a few elements that lie apart, and nothing is
    made of their results for each of those elements again."""
    reductions = [node for node in body.nodes if node.kind == "reduce"]
    if not reductions or any(node.kind not in _KINDS for node in body.nodes):
        return body
    if not all(_is_short(node, shape_of(graph, body, node.operands[0])) for node in reductions):
        return body
    sizes = [product(graph.values[value].shape) for value in body.stores]
    if not all(same(product(node.shape), size) for node in reductions for size in sizes):
        return body
    taken = {*body.loads, *(node.name for node in body.nodes)}
    nodes = list[Node]()
    for node in body.nodes:
        nodes += _steps(node, shape_of(graph, body, node.operands[0]), taken) if node.kind == "reduce" else [node]
    return replace(body, nodes=tuple(nodes))


def _is_short(node: Node, shape: Shape) -> bool:
    if node.operation not in _STEPS or node.compute != "float" or len(node.dims) != 1 or len(node.operands) != 1:
        return False
    size, behind = shape[node.dims[0]], shape[node.dims[0] + 1 :]
    return len(set(size)) == 1 and 1 < size[0] <= MOST and not all(map(is_one, behind))


def _steps(node: Node, shape: Shape, taken: set[str]) -> list[Node]:
    """The elements along the reduced dimension, and what they come to."""
    (dim,), variants = node.dims, len(shape[0])
    kept, found = len(node.shape) == len(shape), list[Node]()
    text = "{0}"
    for place in range(shape[dim][0]):
        at = (place,) * variants
        index = Sliced(dim, at, (1,) * variants) if kept else Selected(dim, at)
        name = f"{node.name}_{place}"
        while name in taken:
            name += "_"
        taken.add(name)
        operation = "slice" if kept else "select"
        found.append(replace(node, name=name, kind="index", operation=operation, dims=(), index=index, flops=0))
        text = _STEPS[node.operation].format(text, f"{{{place}}}") if place else text
    whole = tuple(each.name for each in found)
    return [*found, replace(node, kind="map", operation=text, operands=whole, dims=(), flops=len(whole) - 1)]
