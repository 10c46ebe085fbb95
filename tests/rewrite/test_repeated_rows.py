"""Rows that others broadcast are reduced in the kernel of those; what stands along columns is none of the rows."""

from __future__ import annotations

import pytest

from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

SIZES = {"b": (16, 2, 3), "h": (8, 4, 5), "s": (512, 12, 7), "t": (512, 9, 11)}
SQUARE = {**SIZES, "t": (512, 12, 7)}
"""As many rows of a head as columns: what has an element for each column has as many as there are rows."""
SCORES, DECAYS, TABLE = "torch.randn(b, h, s, t)", "torch.rand(h)", "torch.randn(h, s, t)"
BEHIND = "(torch.arange(x.shape[2])[:, None] - torch.arange(x.shape[3])).float()"
DECAY = f"torch.exp({BEHIND}.abs() * -y[:, None, None])"

CASES = {
    # name: result, inputs, sizes, kernels
    "decays_normalized_by_rows": (
        f"x * (lambda w: w / w.sum(-1, keepdim=True).sqrt())({DECAY})",
        f"{SCORES}, {DECAYS}",
        SIZES,
        1,
    ),
    "a_softmax_of_a_table": ("(x * y.softmax(-1)).sum(-1)", f"{SCORES}, {TABLE}", SIZES, 1),
    "a_table_that_lacks_heads": (
        "(x - y.amax(-1, keepdim=True)).softmax(-1)",
        f"{SCORES}, torch.randn(1, 1, s, t)",
        SIZES,
        1,
    ),
    "sums_that_are_seen_again": (
        "x.sum(-1, keepdim=True) * y.sum(-1).unsqueeze(-1) + x",
        f"{SCORES}, {TABLE}",
        SIZES,
        1,
    ),
    "a_sum_over_one": ("x.softmax(0) - y.sum(0, keepdim=True)", f"{SCORES}, torch.randn(1, h, s, t)", SIZES, 2),
    "weights_of_all_rows": ("x * y.softmax(0)", f"{SCORES}, torch.randn(t)", SIZES, 1),
    "a_table_that_is_a_result": (
        "(lambda w: ((x * w).sum(-1), w))(y.softmax(-1))",
        f"{SCORES}, {TABLE}",
        SIZES,
        2,
    ),
    "a_table_of_columns": ("(x * y.exp()[:, :, None]).sum(-1)", f"{SCORES}, torch.randn(b, h, t)", SIZES, 1),
    "as_many_columns_as_rows": ("(x * y.exp()[:, :, None]).sum(-1)", f"{SCORES}, torch.randn(b, h, t)", SQUARE, 1),
    "as_many_columns_as_rows_of_both": (
        "(x * y.exp()[:, :, None]).sum(-1) + y.exp() * z.tanh()",
        f"{SCORES}, torch.randn(b, h, t), torch.randn(b, h, s)",
        SQUARE,
        1,
    ),
    "a_step_of_a_square_state": (
        "(lambda w: ((w * z[..., None]).sum(2), w))(x * torch.exp(-y.exp())[..., None])",
        f"{SCORES}, torch.randn(b, h, s), torch.randn(b, h, s)",
        SQUARE,
        1,
    ),
    "columns_that_are_a_result": (
        "(lambda w: ((x * w[:, :, None]).sum(-1), w))(y.exp())",
        f"{SCORES}, torch.randn(b, h, t)",
        SQUARE,
        2,
    ),
}
WAYS = [["fuse all", "fuse", "lower"], ["fuse all", "fuse", "lower", "loop over"]]


def source_of(name: str) -> str:
    result, inputs, sizes, _ = CASES[name]
    return reference(result, inputs, sizes=sizes)


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    return interpret_ways({name: source_of(name) for name in CASES}, WAYS)


@pytest.mark.parametrize("name", CASES)
def test_repeated_rows_are_right(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", CASES)
def test_all_is_one_kernel_unless_more_than_repeating_is_asked(name: str) -> None:
    text = text_after(source_of(name), WAYS[0])
    assert text.count("@triton.jit") == CASES[name][3], text
