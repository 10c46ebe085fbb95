"""isomorphism: which stages of a plan compute the same on other values, as the layers of a network do."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, Ref
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Stage


def structural_hash(graph: Graph, stage: Stage) -> Hashable:
    """What a stage is apart from its names: its schedule, its ops with their numbers, the shapes and dtypes of what they
    read, and which of their results leave it. Stages of one form do the same work, so what is best for one is for all."""
    places: dict[str, int] = {}
    ops = []
    for name in stage.ops:
        op = graph.by_name[name]
        ops.append((op.target, _plain(graph, places, op.args), _plain(graph, places, dict(op.kwargs))))
        for out in op.outputs:
            places.setdefault(out, len(places))
    leaving = sorted(places[value] for value in graph.leaving(stage.ops))
    return (stage.template, stage.schedule, tuple(ops), tuple(leaving), _work(graph, stage))


def _work(graph: Graph, stage: Stage) -> Hashable:
    """What a kernel of the stage does, and what it reads: the transpose of an input is read as the input, one of a result as
    it lies, and a mask that is made of numbers is made again. () where no kernel covers it."""
    try:
        body = build(graph, stage.ops, table)
    except NotCovered:
        return ()
    work = tuple((node.kind, node.operation, node.shape) for node in body.nodes)
    return work, tuple(graph.values.get(value) for value in body.loads)


def _plain(graph: Graph, places: dict[str, int], item: Any) -> Hashable:
    """An argument without names: a value is told by its place among those of the stage, and at first by its tensor."""
    if isinstance(item, Ref):
        first = item.name not in places
        place = places.setdefault(item.name, len(places))
        return ("value", place, graph.values.get(item.name) if first else None)
    if isinstance(item, dict):
        return tuple((key, _plain(graph, places, item[key])) for key in sorted(item))
    if isinstance(item, (tuple, list)):
        return tuple(_plain(graph, places, part) for part in item)
    return item if isinstance(item, Hashable) else repr(item)
