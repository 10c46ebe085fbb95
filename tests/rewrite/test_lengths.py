"""A version at many lengths of its sequences: it is right, and its kernels are not compiled again for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.breadth import share
from tests.interpreter import interpreted
from tests.rewrite.length_references import REFERENCES

LENGTHS = (5, 16, 24, 33, 48, 64, 100, 128)
"""64 is the length at the full shapes."""
MOST = 5
"""Kinds of arguments: one for the full shapes, and what Triton makes of multiples of 16 elsewhere: all, some or none. A row
in registers: two powers of two, and what is made of 16 with each."""
WAYS = {"fused": ["lower", "fuse"], "lowered": ["lower"]}
CASES = share([(name, way) for way in WAYS for name in REFERENCES], 5)
"""One is seven seconds of interpretation."""


@cache
def counted() -> Mapping[str, Any]:
    constants = [{"seq": length} for length in LENGTHS]
    cases = [
        {"name": f"{name}.{way}", "source": REFERENCES[name], "way": WAYS[way], "constants": constants}
        for name, way in CASES
    ]
    found: Mapping[str, Any] = json.loads(
        interpreted(Path(__file__).with_name("specializing.py"), given=json.dumps(cases))
    )
    return found


@pytest.mark.parametrize("name,way", CASES)
def test_a_kernel_is_compiled_for_few_of_many_lengths(name: str, way: str) -> None:
    """A row in registers too: up to the full length one power of two does for all, and there is one more here. Of rows side
    by side, as in sums of what is transposed, a thread has several, so that one power of two does up to half of it."""
    found = counted()[f"{name}.{way}"]
    assert found["wrong"] is None
    assert found["kernels"]
    for kernel, kinds in found["kernels"].items():
        widths = Counter(kind.get("n_n") for kind in kinds)  # layers of several widths share a kernel's text
        assert max(widths.values()) <= MOST + (name == "sums"), f"{kernel} is compiled for {kinds}"
