"""forms: which stages of a plan do the same work on other values, from the facts of their graph alone.

The same question as `mtmc.rewrite.alike` answers, for a search's version and for a recorded one.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from mtmc.agents.policies.learned.graphs import GraphFacts
from mtmc.rewrite.plan import Stage


@lru_cache(maxsize=65536)
def form(graph: GraphFacts, stage: Stage) -> Hashable:
    """What a stage is apart from its names: its family and schedule, its ops with their numbers, what they read by its
    shape and dtype or by its place among the stage's own values, and which of those are read elsewhere.

    Ops that the graph does not have count by their names: such a stage is like no other.
    """
    places: dict[int, int] = {}
    ops: list[Hashable] = []
    for name in stage.ops:
        op = graph.by_name.get(name)
        if op is None:
            ops.append(name)
            continue
        reads = tuple(places.get(at, (graph.values[at].shape, graph.values[at].dtype)) for at in op.reads)
        ops.append((op.target, op.numbers, reads))
        for at in (*op.reads, *op.makes):
            places.setdefault(at, len(places))
    leaving = tuple(sorted(places[at] for at in graph.leaving(stage.ops)))
    return hash((stage.family, stage.schedule, tuple(ops), leaving))
