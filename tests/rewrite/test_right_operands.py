"""The right operands of a batch of products, made in the kernel of what lies in memory, in whatever order."""

from __future__ import annotations

import pytest

from tests.rewrite.one_product import Settings, check_refused, interpret_products

BATCH = "torch.randn(3, n, m), torch.randn(3, m, k)"
TOKENS_FIRST = "torch.randn(2, 3, n, m), torch.randn(2, m, 3, k)"
CASES: dict[str, tuple[str, str, Settings]] = {
    "of_a_batch": ("x @ y.exp()", BATCH, {}),
    "transposed": ("x @ y.exp().mT", "torch.randn(3, n, m), torch.randn(3, k, m)", {}),
    "tokens_before_heads": ("torch.relu(x @ (F.elu(y) + 1).permute(0, 2, 1, 3)) * 2", TOKENS_FIRST, {}),
    "whole_numbers": (
        "x @ y.to(x.dtype).mT", "torch.randn(3, n, m), torch.randint(-9, 9, (3, k, m), dtype=torch.int8)", {}
    ),
    "scales_of_columns": ("x @ (y * z[:, None])", f"{BATCH}, torch.randn(3, k)", {}),
    "scales_of_tokens": ("x @ (y * z[..., None]).transpose(1, 2)", f"{TOKENS_FIRST}, torch.randn(2, m, 1)", {}),
    "half": (
        "x @ (y * 2).sigmoid()", BATCH.replace(" m)", " m).bfloat16()").replace("k)", "k).bfloat16()"), {}
    ),
    "split": ("x @ y.exp()", BATCH, {"split_k": 3}),
    "swapped": ("x @ (y + 1).permute(0, 2, 1, 3)", TOKENS_FIRST, {"swapped": 1}),
    "persistent": ("x @ (y + 1).permute(0, 2, 1, 3)", TOKENS_FIRST, {"persistent": 3}),
    "sums_of_columns": ("(x @ y.exp()).sum(-1)", BATCH, {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return interpret_products(CASES)


@pytest.mark.parametrize("name", CASES)
def test_kernels_match_torch(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


@pytest.mark.parametrize(
    ("result", "inputs", "why"),
    [
        ("x @ y.exp()", "torch.randn(n, m), torch.randn(3, m, k)", "share the left one"),
        ("x.exp() @ y.exp()", BATCH, "on both operands"),
        ("(x @ (w := y.exp())), w", BATCH, "right operand is also needed elsewhere"),
    ],
)
def test_what_is_another_thing_is_refused(result: str, inputs: str, why: str) -> None:
    check_refused(result, inputs, why)
