"""Flops of attention by hand: 2 batches, 8 heads of queries, 16 queries and 32 keys of 4 features, values of 4."""

from __future__ import annotations

import pytest
import torch

from mtmc.evaluate.measure.flops import attention_backward_flops, attention_flops, flop_counter, tf32_flops


@pytest.mark.parametrize("heads", [8, 2])
def test_attention_is_counted_whatever_heads_are_shared(heads: int) -> None:
    q = torch.randn(2, 8, 16, 4, requires_grad=True)
    k, v = torch.randn(2, heads, 32, 4), torch.randn(2, heads, 32, 4)
    assert attention_flops(q.shape, k.shape, v.shape) == 2 * 2 * 8 * 16 * 32 * (4 + 4)
    assert attention_backward_flops(q.shape, q.shape, k.shape, v.shape) == 2 * 2 * 8 * 16 * 32 * (3 * 4 + 2 * 4)
    with flop_counter() as forward:
        torch.nn.functional.scaled_dot_product_attention(q.detach(), k, v, enable_gqa=heads != 8)
    assert forward.get_total_flops() == 2 * 2 * 8 * 16 * 32 * (4 + 4)


def test_a_product_and_attention_with_its_gradients_add_up() -> None:
    q, k, v = (torch.randn(2, 8, 16, 4, requires_grad=True) for _ in range(3))
    with flop_counter() as found:
        (torch.nn.functional.scaled_dot_product_attention(q, k, v) @ torch.randn(4, 3)).sum().backward()
    attention = 2 * 2 * 8 * 16 * 16
    assert found.get_total_flops() == attention * (4 + 4) + attention * (3 * 4 + 2 * 4) + 2 * (2 * 2 * 8 * 16 * 4 * 3)


def test_of_fp32_work_convolutions_alone_may_be_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    with flop_counter() as found:
        torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(5, 3, 3, 3)).flatten() @ torch.randn(180, 2)
    assert tf32_flops(found, "float32") == 2 * 3 * 3 * 3 * 5 * 6 * 6
    assert tf32_flops(found, "float16") == 0
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert tf32_flops(found, "float32") == 0
