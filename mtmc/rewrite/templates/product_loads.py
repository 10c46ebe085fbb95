"""product_loads: how many tiles a product's kernel loads for one tile of its left operand."""

from __future__ import annotations

from functools import lru_cache

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, product
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.templates.product import analyse

SMALL = 16
"""A tensor with less than one of so many of the left operand's elements (a weight of its columns, a mask of its rows) is
held in registers: no tile of it waits in shared memory."""


@lru_cache(maxsize=256)
def left_tiles(graph: Graph, ops: tuple[str, ...]) -> int:
    """Tiles that are loaded for each one of the left operand of the product that some ops are; 1 where nothing makes it.

    One for each tensor that is read at the place at hand, and one for each place besides: four of a map that is enlarged
    between its places, and one of each of two that are joined, whichever an element is of.
    """
    if graph.by_name[ops[0]].target in PRODUCTS:
        return 1
    try:
        body = build(graph, ops, table)
        found = analyse(graph, body)
    except NotCovered:
        return 1
    left = found.dot.reads()[0]
    least = (product(found.batch) or (1,))[0] * found.m[0] * found.k[0] / SMALL
    return max(1, len({each for each in _read(graph, body, left, ()) if _elements(graph, each[0]) >= least}))


def _read(graph: Graph, body: Body, name: str, path: tuple[str, ...]) -> set[tuple[str, tuple[str, ...]]]:
    """Values from outside that a node is made of, each with the nodes that move elements on the way to it."""
    node = body.node(name)
    if node is None:
        return {(name, path)}
    further = (*path, name) if node.kind == "index" else path
    return set[tuple[str, tuple[str, ...]]]().union(*(_read(graph, body, read, further) for read in node.reads()))


def _elements(graph: Graph, value: str) -> int:
    return (product(graph.values[value].shape) or (1,))[0]
