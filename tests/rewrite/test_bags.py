"""Bags of embeddings, and numbers that go where a mask holds, beside torch, element by element."""

from __future__ import annotations

import pytest

from tests.breadth import share
from tests.rewrite.bag_references import BAGS, MASKED
from tests.rewrite.interpreting import interpret
from tests.rewrite.special_references import cases

REFERENCES = {**BAGS, **MASKED}
SOME = share(list(REFERENCES), 3)


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return interpret(cases({name: REFERENCES[name] for name in SOME}, [["lower"], ["fuse", "lower"]], whole=False))


@pytest.mark.parametrize("name", SOME)
def test_rows_and_numbers_come_where_torch_has_them(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None
