"""The right operands of a batch of products, made in the kernel of what lies in memory, in whatever order."""

from __future__ import annotations

import pytest

from mtmc.task import task_from_source
from tests.rewrite.one_product import Settings, check_refused, interpret_products
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, version

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
    # Several products of a batch have one right operand.
    "of_each_head": ("x @ y", "torch.randn(2, 3, n, m), torch.randn(3, m, k)", {}),
    "of_each_sequence": ("torch.relu(x @ y)", "torch.randn(2, 3, n, m), torch.randn(2, 1, m, k)", {}),
    "of_all": ("x @ y", "torch.randn(3, n, m), torch.randn(1, m, k)", {}),
    "of_each_head_in_halves": (
        "x @ y", "torch.randn(2, 3, n, m).bfloat16(), torch.randn(1, 3, m, k).bfloat16()", {"split_k": 2}
    ),
    "of_each_head_persistent": ("x @ y", "torch.randn(2, 3, n, m), torch.randn(3, m, k)", {"persistent": 3}),
    "maxima_of_each_head": ("(x @ y).amax(-1)", "torch.randn(2, 3, n, m), torch.randn(3, m, k)", {}),
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
        ("x @ y.exp()", "torch.randn(2, 3, n, m), torch.randn(3, m, k)", "several products of a batch share"),
        ("x @ y", "torch.randn(3, n, m), torch.randn(2, 3, m, k)", "left operands that broadcasts"),
    ],
)
def test_what_is_another_thing_is_refused(result: str, inputs: str, why: str) -> None:
    check_refused(result, inputs, why)


@pytest.mark.parametrize(
    ("left", "right", "copied"),
    [("2, 3, n", "3, k", True), ("4, 3, n", "1, 1, k", True), ("3, n", "3, k", False), ("1, 3, n", "3, k", False),
     ("2, 3, n", "k", False), ("n", "3, k", False)],
)  # fmt: skip
def test_what_the_library_copies_first_is_known(left: str, right: str, copied: bool) -> None:
    text = reference("x @ y", f"torch.randn({left}, k), torch.randn({right}, 5)")
    (action,) = actions_on(version(task_from_source(text, "copied")), "lower")
    assert ("copied" in dict(action.params)) == copied


@pytest.mark.parametrize(
    ("result", "copied"),
    [("F.layer_norm(x.mT, x.shape[1:2])", True), ("torch.softmax(x.permute(2, 0, 1), -1)", True),
     ("torch.log_softmax(x[:, 1:], 2)", True), ("torch.softmax(x, -1)", False), ("F.relu(x.mT)", False)],
)  # fmt: skip
def test_rows_that_the_library_puts_in_order_are_known(result: str, copied: bool) -> None:
    task = task_from_source(reference(result, "torch.randn(n, m, k)"), "copied")
    (action,) = actions_on(version(task), "lower")
    assert ("copied" in dict(action.params)) == copied
