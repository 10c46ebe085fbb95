"""The largest, the smallest and their places where NaN, infinities and equal numbers are among the values."""

from __future__ import annotations

import pytest

from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.special_references import cases, special

ROWS = "floats(n, m)"
NAN_ROWS = "torch.randn(n, 16) / (torch.rand(n, 1) - 0.3).clamp(min=0)"
CALLS = {
    "amax": "torch.amax({0}, 1), torch.amin({0}, 1)",
    "amax_of_columns": "torch.amax({0}, 0, keepdim=True), torch.amin({0}, 0)",
    "max": "torch.max({0}, 1)",
    "min": "torch.min({0}, 1)",
    "places": "torch.argmax({0}, 1), torch.argmin({0}, 1)",
    "of_all": "torch.argmax({0}), torch.max({0}), torch.argmin({0}), torch.min({0})",
}
REFERENCES = {
    **{name: special(text.format("x"), ROWS) for name, text in CALLS.items()},
    **{f"{name}_half": special(text.format("x"), "floats(n, m, dtype=torch.float16)") for name, text in CALLS.items()},
    **{f"{name}_whole": special(text.format("x"), "whole(n, m)") for name, text in CALLS.items()},
    "norm": special("torch.linalg.vector_norm(x, float('inf'), 1)", ROWS),
    "pooled": special("F.adaptive_max_pool2d(x, 1)", "floats(2, 3, n % 5 + 2, m % 7 + 2)"),
    "windows": special("F.max_pool2d(x, 3, 2, 1)", "floats(2, 3, n % 5 + 4, m % 7 + 4)"),
    "softmax_by_hand": special("(lambda e: e / e.sum(1, True))(torch.exp(x - x.amax(1, True)))", ROWS),
    "top_of_exponentials": special(
        "(lambda t: (torch.exp(x - t).sum(1, True) + t, torch.exp(x - t).sum(1, True)))(x.amax(1, True))", ROWS
    ),
    "product": special("F.linear(x, y).amax(1), F.linear(x, y).amin(1)", NAN_ROWS, "torch.randn(m, 16)"),
}
WAYS = [["fuse", "lower"], ["fuse", "lower", "loop over"], ["lower", "split"]]


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return interpret(cases(dict(share(list(REFERENCES.items()), 3)), WAYS))


@pytest.mark.parametrize("name", share(list(REFERENCES), 3))
def test_nan_is_what_torch_makes_of_it(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None
