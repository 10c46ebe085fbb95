"""places_kept: which results a kernel may write where a tensor lies that it reads.

A thread of an elementwise kernel reads its elements first and writes its results last, and no other thread reads these
elements. So a result may take the place of an operand, if each element of the one hangs on that element alone of the other.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered, Trailing
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, product, same
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Stage


def written_where_read(graph: Graph, stage: Stage, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Those of some (result, operand) of a kernel of which the result may be written where the operand lies."""
    if stage.template != "pointwise" or "layout" in dict(stage.schedule):
        return ()
    try:
        body = build(graph, stage.ops, table)
    except NotCovered:
        return ()
    first, *others = (product(graph.values[value].shape) for value in body.stores)
    if not all(same(first, size) for size in others):  # programs of one part read what those of another write
        return ()
    return tuple(pair for pair in pairs if _fits(graph, body, *pair))


def _fits(graph: Graph, body: Body, value: str, target: str) -> bool:
    made, old = graph.values[value], graph.values[target]
    if target not in body.loads or value not in body.stores or not (made.contiguous and old.contiguous):
        return False
    if (made.shape, made.dtype) != (old.shape, old.dtype):
        return False
    reached = {target}
    for node in body.nodes:  # in order: what hangs on the operand
        if not reached.intersection(node.reads()):
            continue
        spread = any(isinstance(item, Trailing) and item.value in reached for item in node.operands)
        if node.kind != "map" or node.shape != made.shape or spread:
            return False
        reached.add(node.name)
    return True
