"""widened: products of fp32 numbers that were made of 16 bits become products of these, which tensor cores make as they are.

    sum over k of float(a[m, k]) float(b[n, k])

A product of two numbers of 16 bits has at most 22 of fp32's 24, and tensor cores add them up in fp32: nothing is lost, and
it is a third of the work of three TF32 products, at twice their rate.
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, Node, leading_to
from mtmc.rewrite.graph import Graph

HALVES = ("float16", "bfloat16")


def of_halves(graph: Graph, body: Body) -> Body:
    """The body with each product of widened numbers as one of what these were; else the body as it is."""
    found = {node.name: narrow for node in body.nodes if (narrow := _narrowed(graph, body, node)) is not None}
    if not found:
        return body
    nodes = tuple(found.get(node.name, node) for node in body.nodes)
    changed = replace(body, nodes=nodes)
    needed = leading_to(changed, body.stores)
    kept = tuple(node for node in nodes if node.name in needed)
    names = {node.name for node in kept}
    loads = [read for node in kept for read in node.reads() if read not in names]
    return replace(changed, nodes=kept, loads=tuple(dict.fromkeys(loads)))


def _narrowed(graph: Graph, body: Body, node: Node) -> Node | None:
    """A product of two matrices as that of what they were before they were widened; None for any other node."""
    if node.kind != "dot" or len(node.operands) != 2:
        return None
    under = [_before(graph, body, value) for value in node.reads()]
    if "" in under or len({graph.values[value].dtype for value in under}) > 1:
        return None
    return replace(node, operands=tuple(under))


def _before(graph: Graph, body: Body, value: str) -> str:
    """The value of 16 bits from outside that a value is, in fp32; "" where there is none."""
    node, tensor = body.node(value), graph.values.get(value)
    if node is None or tensor is None or tensor.dtype != "float32":
        return ""
    while node is not None and node.kind == "map" and node.operation == "{0}" and isinstance(node.operands[0], str):
        value = node.operands[0]
        node = body.node(value)
    tensor = graph.values.get(value)
    return value if node is None and tensor is not None and tensor.dtype in HALVES else ""
