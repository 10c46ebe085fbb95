"""Attention of a local layer: each token sees the window before it.

Source: Gemma 3 1B (arXiv 2503.19786): 4 query heads and 1 key head of 256, a window of 512. 2 x 4096 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 4096
heads = 4
head_dim = 256
window = 512

VARIANTS = {
    "small": {"batch": 2, "seq": 32, "heads": 2, "head_dim": 16, "window": 9},
    "odd1": {"batch": 1, "seq": 21, "heads": 3, "head_dim": 9, "window": 5},
    "odd2": {"batch": 3, "seq": 15, "heads": 2, "head_dim": 7, "window": 17},
}


class Model(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        places = torch.arange(q.shape[2], device=q.device)
        behind = places[:, None] - places[None, :]
        seen = (behind >= 0) & (behind < self.window)
        k, v = k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class Library(Model):
    """By FlashAttention 3 (`pip install fa3-fwd`), for Hopper."""

    def forward(self, q, k, v):
        from fa3_fwd_interface import flash_attn_func

        turned = (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        found = flash_attn_func(*turned, causal=True, window_size=(self.window - 1, 0))
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)


def get_inputs():
    q = torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16)
    k = torch.randn(batch, 1, seq, head_dim, dtype=torch.bfloat16)
    v = torch.randn(batch, 1, seq, head_dim, dtype=torch.bfloat16)
    return [q, k, v]


def get_init_inputs():
    return [window]
