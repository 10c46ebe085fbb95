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


class Joined(nn.Module):
    """Attention whose heads are joined as torch's own encoder does it: a view, where the library's strides allow one."""

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        heads = nn.functional.scaled_dot_product_attention(q, q, q)
        return heads.permute(2, 0, 1, 3).view(12, 32)


class Filled(nn.Module):
    """A view that is written: a copy in its place would lose that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.view(-1).unbind(0)[0].add_(1)
        return y


def test_other_strides_of_the_library_are_taken_and_a_view_that_is_written_stays_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q = torch.randn(2, 4, 6, 8).permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    model, inputs = printed(capture_module(Joined(), (q,)).task)
    wanted = model(*inputs)
    attention = nn.functional.scaled_dot_product_attention

    def elsewhere(*args: torch.Tensor, **kwargs: object) -> torch.Tensor:
        return attention(*args, **kwargs).contiguous()

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", elsewhere)
    assert torch.equal(model(*inputs), wanted)
    assert ".view(" in capture_module(Filled(), (torch.randn(3, 4),)).task.source
