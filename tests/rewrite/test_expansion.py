"""The body of a kernel is found once for the same ops of the same graph, and refused with the same reason."""

from __future__ import annotations

import pytest

from mtmc.rewrite import expansion
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.task import load_task


def test_a_body_is_found_once() -> None:
    graph = export_graph(load_task("elementwise_chain"))
    names = [op.name for op in graph.ops]
    first = expansion.build(graph, names, table)
    assert expansion.build(graph, list(names), table) is first
    assert expansion.build(graph, names[:1], table) is not first


def test_another_table_of_ops_gives_another_body() -> None:
    graph = export_graph(load_task("elementwise_chain"))
    names = [op.name for op in graph.ops]
    assert expansion.build(graph, names, table)
    with pytest.raises(NotCovered, match="no kernel template covers"):
        expansion.build(graph, names, lambda _: None)


def test_a_refusal_is_the_same_again_and_holds_on_to_nothing() -> None:
    graph = export_graph(load_task("elementwise_chain"))
    names = [op.name for op in graph.ops]
    depths = []
    for _ in range(3):
        with pytest.raises(NotCovered, match="no kernel template covers aten") as refused:
            expansion.build(graph, names, _nothing)
        depths.append(len(refused.traceback))
    assert len(set(depths)) == 1


def _nothing(_: str) -> None:
    return None
