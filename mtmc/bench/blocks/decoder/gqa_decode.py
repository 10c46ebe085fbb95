"""Grouped-query attention of one new token over a cache of keys and values, each sequence of a length of its own.

Source: Qwen2.5 7B (arXiv 2412.15115): 28 query heads, 4 key heads of 128. 32 sequences, a cache of 4096 tokens, bf16.
"""

import torch
from torch import nn

batch = 32
cache = 4096
heads = 28
kv_heads = 4
head_dim = 128

VARIANTS = {
    "small": {"batch": 3, "cache": 40, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"batch": 2, "cache": 19, "heads": 6, "kv_heads": 2, "head_dim": 9},
    "odd2": {"batch": 5, "cache": 27, "heads": 3, "kv_heads": 1, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads, kv_heads, head_dim):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim

    def forward(self, q, keys, values, lengths):
        batch, cache = keys.shape[0], keys.shape[2]
        grouped = q.view(batch, self.kv_heads, self.heads // self.kv_heads, self.head_dim)
        scores = grouped @ keys.transpose(-2, -1) * self.head_dim**-0.5
        empty = torch.arange(cache, device=q.device) >= lengths[:, None]
        scores = scores.float().masked_fill(empty[:, None, None], float("-inf"))
        weights = torch.softmax(scores, dim=-1).to(q.dtype)
        return (weights @ values).view(batch, self.heads * self.head_dim)


def get_inputs():
    q = torch.randn(batch, heads, head_dim, dtype=torch.bfloat16)
    keys = torch.randn(batch, kv_heads, cache, head_dim, dtype=torch.bfloat16)
    values = torch.randn(batch, kv_heads, cache, head_dim, dtype=torch.bfloat16)
    return [q, keys, values, torch.randint(1, cache + 1, (batch,))]


def get_init_inputs():
    return [heads, kv_heads, head_dim]
