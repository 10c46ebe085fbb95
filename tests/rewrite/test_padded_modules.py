"""Sizes that a module rounds, halves or multiplies: at each, what is handed out is right or refuses, as torch's own words
would come from inside of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.breadth import share
from tests.interpreter import interpreted
from tests.rewrite.padded_modules import MODULES

NAMES = share(list(MODULES), 12)


@pytest.fixture(scope="module")
def became() -> dict[str, dict[str, list[object]]]:
    program = Path(__file__).with_name("padded_modules.py")
    found: dict[str, dict[str, list[object]]] = json.loads(interpreted(program, given=json.dumps(NAMES)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_call_at_any_sizes_is_right_or_refused(became: dict[str, dict[str, list[object]]], name: str) -> None:
    found = became[name]
    assert {answer: sizes for answer, sizes in found.items() if answer.startswith(("WRONG", "both"))} == {}
    assert list(MODULES[name][1]) == [tuple(s) for s in found["right"][0]]
    assert found["refused"]
