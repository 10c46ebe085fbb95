"""Masks that a CPU takes and a GPU reads wrongly are printed as a GPU takes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mtmc.task import capture_module
from tests.task.printed import printed

KEYS = torch.arange(12) < torch.tensor([12, 5])[:, None, None, None]


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (
            (~KEYS) * torch.finfo(torch.float32).min,
            "mask.clamp(min=torch.finfo(torch.bfloat16).min).to(torch.bfloat16)",
        ),
        (torch.ones(2, 1, 6, 1, dtype=torch.bool), "mask.expand(*mask.shape[:-1], k.size(-2)).contiguous()"),
        (KEYS, "k, k, mask)"),
        (torch.zeros(2, 1, 6, 12).bfloat16(), "k, k, mask)"),
    ],
)
def test_masks_have_the_querys_dtype_and_a_value_for_each_key(mask: torch.Tensor, text: str) -> None:
    q, k = torch.randn(2, 4, 6, 8).bfloat16(), torch.randn(2, 4, 12, 8).bfloat16()
    task = capture_module(Attention(), (q, k, mask)).task
    assert text in task.source
    for label in ("full", "odd1"):
        model, inputs = printed(task, label)
        assert torch.allclose(model(*inputs).float(), Attention()(*inputs).float(), atol=2e-2)
