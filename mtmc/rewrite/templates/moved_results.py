"""moved_results: results of products whose elements lie in another order than the product's, stored where they belong.

Heads are multiplied one by one, and stand side by side behind each token afterwards; chunks of a sequence are one sequence
again. torch copies for that. A program knows where each element of its tile belongs: the views and permutations between the
product and the result, backwards, say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Shape, Size
from mtmc.rewrite.index_maps import Asked, At, Permuted, Reshaped
from mtmc.rewrite.places import linear
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables, home
from mtmc.rewrite.templates.writer import Writer

Back = Mapping[str, tuple[Node, ...]]
"""Results, each with the nodes that bring its elements back to the order of the product, the last one in that order."""


@dataclass(frozen=True)
class Moved:
    """A body with such nodes behind each result."""

    body: Body
    back: Back


def moved_results(body: Body) -> Moved | None:
    """The body with what brings its results back behind all; None where one is in the order of the product already, or is
    more than elementwise work on it and other orders of that."""
    found = dict[str, tuple[Node, ...]]()
    for value in body.stores:
        chain = None if body.part(value) is not None else _chain(body, value)
        if not chain:
            return None
        found[value] = tuple(_backwards(body, value, chain))
    nodes = (*body.nodes, *(node for back in found.values() for node in back))
    return Moved(replace(body, nodes=nodes), found)


def _chain(body: Body, value: str) -> list[Node] | None:
    """The views and permutations between a product and a result, the last of them first; None where anything but
    elementwise work stands between them as well."""
    chain, node = list[Node](), body.node(value)
    while node is not None and node.kind != "dot":
        if node.kind == "map":
            whole = [
                each for read in node.reads() if (each := body.node(read)) is not None and each.shape == node.shape
            ]
            node = next((each for each in whole if _is_of_product(body, each)), None)
        elif node.kind == "view" or (node.kind == "index" and isinstance(node.index, Permuted)):
            chain.append(node)
            node = body.node(node.reads()[0])
        else:
            return None
    return chain if node is not None else None


def _is_of_product(body: Body, node: Node) -> bool:
    """Whether a node hangs on a product."""
    operands = (body.node(read) for read in node.reads())
    return node.kind == "dot" or any(each is not None and _is_of_product(body, each) for each in operands)


def _backwards(body: Body, value: str, chain: Sequence[Node]) -> list[Node]:
    """Nodes that undo a chain, behind its result."""
    taken, found, last = {node.name for node in body.nodes}, list[Node](), value
    for node in chain:
        before = body.node(node.reads()[0])
        assert before is not None
        name = f"{value}_back{len(found) + 1}"
        while name in taken:
            name += "_"
        if node.kind == "view":
            found.append(Node(name, "view", "", (last,), before.shape, node.compute, flops=0))
        else:
            assert isinstance(node.index, Permuted)
            order = tuple(node.index.dims.index(dim) for dim in range(len(node.index.dims)))
            index = Permuted(order)
            found.append(Node(name, "index", "permute", (last,), before.shape, node.compute, index=index))
        last = name
    return found


def offset_of(
    writer: Writer, back: Sequence[Node], shape: Shape, groups: tuple[Group, ...], variables: Variables
) -> str:
    """Where the elements at hand lie in a result of this shape, in order. Lines for parts of that are written.
    Raises: NotCovered."""
    at = home(writer, back[-1].shape, groups)
    if at is None:
        raise NotCovered("a result with another number of elements than its product")
    shapes = [*(node.shape for node in back[-2::-1]), shape]
    for node, below in zip(reversed(back), shapes, strict=True):
        at = _place(node, at, below, len(writer.graph.variants))
    return Elements(writer, groups, variables).text(linear(at, shape, len(writer.graph.variants)))


def _place(node: Node, at: At, below: Shape, variants: int) -> At:
    """The place in a node's operand of the element at a place of its own. below: the operand's shape."""
    index = node.index if node.index is not None else Reshaped(node.shape)
    (piece,) = index.pieces(Asked(at, (below,), variants, _never))
    return piece.at


def _never(number: int, at: At, wrap: Size | None) -> str:
    raise NotCovered("an order that is loaded")
