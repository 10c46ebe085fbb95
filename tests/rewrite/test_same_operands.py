"""Products of a matrix with itself: each side has tiles of its own, and so a descriptor of its own."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.test_left_operands import in_one

SQUARE = "torch.randn(k, k)"
TILE: dict[str, int | str] = {"block_m": 32, "block_n": 16, "block_k": 16, "split_k": 1}
CASES: dict[str, tuple[str, str, dict[str, int | str]]] = {
    "itself": ("x @ x", SQUARE, {"operands": "descriptors"}),
    "work_before": ("(x * 0.5) @ x", SQUARE, {"operands": "descriptors"}),
    "by_kernel": ("torch.relu(x @ x)", SQUARE, {"operands": "own_descriptors"}),
    "stored": ("x @ x", SQUARE, {"operands": "descriptors", "results": "descriptors"}),
    "rows": ("F.linear(x, x)", "torch.randn(n, k)", {"operands": "descriptors"}),
    "rows_by_kernel": ("F.linear(x + 1, x)", "torch.randn(n, k)", {"operands": "own_descriptors"}),
    "pointers": ("x @ x", SQUARE, {"operands": "pointers"}),
}


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    cases = []
    for name, (result, inputs, settings) in CASES.items():
        task = task_from_source(reference(result, inputs), name)
        source = print_plan(task, export_graph(task), in_one(task, {**TILE, **settings})).source
        cases.append({"name": name, "source": task.source, "candidate": source})
    return interpret(cases)


@pytest.mark.parametrize("name", CASES)
def test_kernels_match_torch(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]
