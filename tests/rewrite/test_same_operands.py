"""Products of a matrix with itself: each side has tiles of its own, and so a descriptor of its own."""

from __future__ import annotations

import pytest

from tests.rewrite.one_product import Settings, interpret_products

SQUARE = "torch.randn(k, k)"
TILE: Settings = {"block_m": 32, "block_n": 16, "block_k": 16, "split_k": 1}
CASES: dict[str, tuple[str, str, Settings]] = {
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
    return interpret_products({name: (*case[:2], {**TILE, **case[2]}) for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_kernels_match_torch(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]
