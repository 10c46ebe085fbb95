"""Flops of attention by hand: 2 batches, 8 heads of queries, 16 queries and 32 keys of 4 features, values of 4."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from mtmc.evaluate.measure.flops import CountedProducts, Product, attention_backward_flops, attention_flops


@pytest.mark.parametrize("heads", [8, 2])
def test_attention_is_counted_whatever_heads_are_shared(heads: int) -> None:
    q = torch.randn(2, 8, 16, 4, requires_grad=True)
    k, v = torch.randn(2, heads, 32, 4), torch.randn(2, heads, 32, 4)
    assert attention_flops(q.shape, k.shape, v.shape) == 2 * 2 * 8 * 16 * 32 * (4 + 4)
    assert attention_backward_flops(q.shape, q.shape, k.shape, v.shape) == 2 * 2 * 8 * 16 * 32 * (3 * 4 + 2 * 4)
    with CountedProducts() as forward:
        torch.nn.functional.scaled_dot_product_attention(q.detach(), k, v, enable_gqa=heads != 8)
    assert forward.flops == 2 * 2 * 8 * 16 * 32 * (4 + 4)


def test_a_product_and_attention_with_its_gradients_add_up() -> None:
    q, k, v = (torch.randn(2, 8, 16, 4, requires_grad=True) for _ in range(3))
    with CountedProducts() as found:
        (torch.nn.functional.scaled_dot_product_attention(q, k, v) @ torch.randn(4, 3)).sum().backward()
    attention = 2 * 2 * 8 * 16 * 16
    assert found.flops == attention * (4 + 4) + attention * (3 * 4 + 2 * 4) + 2 * (2 * 2 * 8 * 16 * 4 * 3)


def products(forward: Callable[[], object]) -> list[Product]:
    with CountedProducts() as counted:
        forward()
    return counted.products


def test_of_fp32_work_convolutions_alone_may_be_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward() -> None:
        torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(5, 3, 3, 3)).flatten()[None] @ torch.randn(
            180, 2
        )

    convolution, product = 2 * 3 * 3 * 3 * 5 * 6 * 6, 2 * 180 * 2
    assert products(forward) == [Product("fp32", "tf32", convolution), Product("fp32", "tf32x3", product)]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert products(forward)[0] == Product("fp32", "tf32x3", convolution)


DRAWN = torch.Generator().manual_seed(0)
"""Of numbers that are drawn anew, one is too large for 8 bits now and then."""
A, B = torch.randn(24, 32, generator=DRAWN), torch.randn(32, 16, generator=DRAWN)
FLOPS = 2 * 24 * 32 * 16


@pytest.mark.parametrize(
    ("left", "right", "unit"),
    [
        (A, B, ("fp32", "tf32x3")),
        (A.half(), B.half(), ("fp16", None)),
        (A.bfloat16().float(), B.bfloat16().float(), ("fp16", None)),  # widened: a product in bf16 keeps what they hold
        (A.bfloat16().float().T.contiguous().T, torch.relu(B.half().float()), ("fp16", None)),
        (A.bfloat16().float(), B, ("fp32", "bf16x3")),
        (A, B.half().float(), ("fp32", "bf16x3")),
        (A.double(), B.double(), ("fp64", None)),
        (A.half().double(), B.half().double(), ("fp64", None)),  # what they are summed up to has to be float64's
        ((A * 30).round().half(), (B * 30).round().half(), ("int8", None)),
        (A.to(torch.float8_e4m3fn).bfloat16(), B.to(torch.float8_e5m2).bfloat16(), ("fp8", None)),
        (A.to(torch.float8_e4m3fn).bfloat16(), B.bfloat16(), ("fp16", None)),
    ],
)
def test_a_products_unit_is_a_matter_of_the_numbers_that_it_multiplies(
    left: torch.Tensor, right: torch.Tensor, unit: tuple[str, str | None]
) -> None:
    assert products(lambda: left @ right) == [Product(*unit, FLOPS)]
    added = torch.randn(16, dtype=left.dtype)
    assert products(lambda: torch.addmm(added, left, right)) == [
        Product(*unit, FLOPS)
    ]  # what is added makes no difference


def test_inputs_in_fp32_that_are_multiplied_in_bf16_again_and_again() -> None:
    """As Newton and Schulz do it: fp32 in, all products in bf16, and half of those whose results are symmetric."""

    def forward() -> None:
        x = (A / A.norm()).bfloat16()
        for _ in range(3):
            square = x @ x.T
            x = x + (square + 2.1 * square @ square) @ x

    squares, rest = 2 * 24 * 32 * 24, 2 * 24 * 24 * 24
    symmetric = [Product("fp16", None, flops * 25 // 48) for flops in (squares, rest)]
    assert products(forward) == 3 * [*symmetric, Product("fp16", None, squares)]


def test_what_is_multiplied_in_fp32_and_in_bf16_beside_it_counts_each_in_its_own_way() -> None:
    found = products(lambda: (A @ B).bfloat16() @ B.T.bfloat16())
    assert [(each.dtype, each.precision) for each in found] == [("fp32", "tf32x3"), ("fp16", None)]


@pytest.mark.parametrize("batch", [(), (3,)])
def test_half_of_a_symmetric_product_is_computed_at_least(batch: tuple[int, ...]) -> None:
    x, y = torch.randn(*batch, 24, 32), torch.randn(*batch, 24, 32)
    whole = 2 * 24 * 32 * 24 * math.prod(batch)
    assert products(lambda: x @ x.mT)[0].flops == whole * 25 // 48
    assert products(lambda: x @ x.clone().mT)[0].flops == whole * 25 // 48
    assert products(lambda: x @ y.mT)[0].flops == whole
    assert products(lambda: 1.7 * x @ x.mT)[0].flops == whole * 25 // 48
    assert products(lambda: x @ (x + 0.01).mT)[0].flops == whole


def test_torch_counts_each_product_in_full() -> None:
    with CountedProducts() as counted:
        A @ A.T
    assert counted.flops == 2 * 24 * 32 * 24


def test_a_product_of_nothing_takes_nothing() -> None:
    assert [each.flops for each in products(lambda: torch.randn(0, 4) @ torch.randn(4, 0))] == [0]
