"""Tensors changed at places that are loaded, beside torch, element by element."""

from __future__ import annotations

import pytest

from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.scatter_references import SCATTERS
from tests.rewrite.special_references import cases

SOME = share(list(SCATTERS), 4)


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return interpret(cases({name: SCATTERS[name] for name in SOME}, [["lower"], ["fuse", "lower"]], whole=False))


@pytest.mark.parametrize("name", SOME)
def test_elements_come_where_torch_has_them(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None
