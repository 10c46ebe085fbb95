"""Sorts, places in order and the first few of rows, beside torch, element by element."""

from __future__ import annotations

import pytest

from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.order_references import ORDERS
from tests.rewrite.special_references import cases

SOME = share(list(ORDERS), 6)


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return interpret(cases({name: ORDERS[name] for name in SOME}, [["lower"], ["fuse", "lower"]], whole=False))


@pytest.mark.parametrize("name", SOME)
def test_elements_are_in_torchs_order(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None
