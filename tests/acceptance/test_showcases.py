"""The showcases under examples/: written by hand, exact at any shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.im2win import LAYERS, Layer
from benchmarks.shared_prompt import flops
from tests.interpreter import interpreted

ROOT = Path(__file__).parents[2]
SHOWCASES = [path.parent.name for path in sorted((ROOT / "examples").glob("*/kernel.py"))]
NO_WORSE = 1.25
"""Times the error that the reference itself has at the same precision."""


@pytest.mark.parametrize("name", SHOWCASES)
def test_it_is_as_exact_as_its_reference_at_every_shape(name: str) -> None:
    found = json.loads(interpreted(Path(__file__).with_name("showcase.py"), str(ROOT / "examples" / name)))
    assert len(found) >= 4
    worse = {
        f"{where}, output {at}": (ours, theirs)
        for where, pairs in found.items()
        for at, (ours, theirs) in enumerate(pairs)
        if ours > max(NO_WORSE * theirs, 1e-6)
    }
    assert not worse, worse


def test_arithmetic_of_a_shared_prompt() -> None:
    # Two sequences of 4 + 2: 36 causal pairs (halves counted as areas) against 8 of the prompt and 2 * (8 + 2) of responses.
    sizes = {"responses": 2, "prompt": 4, "response": 2, "heads": 1, "width": 1}
    assert flops(sizes) == (36 * 14, 28 * 14)


def test_memory_of_window_order() -> None:
    # One channel, 5 x 5, kernel 3, stride 1: 9 outputs of 9 numbers; 3 rows of windows of 3 whole rows of 5 numbers.
    layer = Layer("", 1, 5, 1, 3, 1)
    assert (layer.column_numbers, layer.window_numbers) == (81, 45)
    assert all(1 - layer.window_numbers / layer.column_numbers > 0.23 for layer in LAYERS)
