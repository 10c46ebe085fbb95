"""Grids, gradients of pooling, folds, strides and distances, beside torch, element by element."""

from __future__ import annotations

import pytest

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.pixel_references import PIXELS
from tests.rewrite.special_references import cases, special

SOME = share(list(PIXELS), 4)


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return interpret(cases({name: PIXELS[name] for name in SOME}, [["lower"], ["fuse", "lower"]], whole=False))


@pytest.mark.parametrize("name", SOME)
def test_elements_are_those_of_torch(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None


def test_an_offset_into_the_memory_of_an_input_stays_a_call() -> None:
    graph = export_graph(task_from_source(special("x.as_strided((2, 2), (2, 1), 1)", "torch.randn(n, m)"), "offset"))
    with pytest.raises(NotCovered, match="an offset into the memory of an input"):
        build(graph, [op.name for op in graph.ops], table)
