"""Layers joined by their weights: also where the kernel picks each column's weights itself, and in 16 bits."""

from __future__ import annotations

import re

from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

LAYERS = "self.q, self.k = nn.Linear(k, 24), nn.Linear(k, 8, bias=False)"
HEADS = reference("self.q(x).exp().unflatten(-1, (3, 8)) * self.k(x)[:, None]", "torch.randn(n, k)", LAYERS)
HALF = HEADS.replace("torch.randn(n, k)", "torch.randn(n, k).bfloat16()").replace(
    "bias=False)", "bias=False)\n        self.bfloat16()"
)
JOIN, LOWER, PICK = "rewrite by algebra", "lower linear_joined", "fuse linear_weights and linear_joined"
"""A kernel picks weights itself; for a product of the library that is not offered."""


def test_joined_layers_are_right() -> None:
    ways = [[JOIN, "fuse all", "lower"], [JOIN, LOWER, PICK]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in (("fp32", HEADS), ("bf16", HALF))]
    assert interpret(cases) == {"fp32": None, "bf16": None}


def test_what_a_loop_works_out_has_no_name_from_before_it() -> None:
    """Triton would carry it around the loop, and refuse its other type."""
    text = text_after(HEADS, [JOIN, LOWER, PICK])
    (kernel,) = re.findall(r"@triton\.jit\n.*?\n\n\n", text, re.DOTALL)
    before = set(re.findall(r"^    (\w+) = ", kernel, re.MULTILINE))
    inside = set(re.findall(r"^        (\w+) = ", kernel, re.MULTILINE))
    assert "inside" in before
    assert before & inside <= {"linear_joined_dot", "rows", "cols", "batch"}
