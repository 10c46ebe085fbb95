"""Causal grouped-query attention of a prefill, by the library's call with its own grouping.

Source: GQA (arXiv 2305.13245) in Llama 3 8B (arXiv 2407.21783): 32 query heads, 8 key heads of 128.
2 x 2048 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 2048
heads = 32
kv_heads = 8
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "seq": 13, "heads": 6, "kv_heads": 2, "head_dim": 9},
    "odd2": {"batch": 3, "seq": 17, "heads": 3, "kv_heads": 1, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Library(Model):
    """By FlashAttention 3 (`pip install fa3-fwd`), for Hopper."""

    def forward(self, q, k, v):
        from fa3_fwd_interface import flash_attn_func

        found = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)


def get_inputs():
    q = torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16)
    k = torch.randn(batch, kv_heads, seq, head_dim, dtype=torch.bfloat16)
    v = torch.randn(batch, kv_heads, seq, head_dim, dtype=torch.bfloat16)
    return [q, k, v]


def get_init_inputs():
    return []
