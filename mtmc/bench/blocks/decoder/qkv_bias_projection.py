"""The projection to queries, keys and values with a bias, cut and laid out by heads.

Source: Qwen2.5 7B (arXiv 2412.15115): width 3584, 28 query heads, 4 key heads of 128. 2048 tokens in bf16.
"""

import torch
from torch import nn

seq = 2048
heads = 28
kv_heads = 4
head_dim = 128

VARIANTS = {
    "small": {"seq": 40, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"seq": 7, "heads": 3, "kv_heads": 1, "head_dim": 11},
    "odd2": {"seq": 19, "heads": 5, "kv_heads": 3, "head_dim": 9},
}


class Model(nn.Module):
    def __init__(self, heads, kv_heads, head_dim):
        super().__init__()
        self.sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        self.head_dim = head_dim
        self.qkv = nn.Linear(heads * head_dim, sum(self.sizes))
        self.to(torch.bfloat16)

    def forward(self, x):
        parts = self.qkv(x).split(self.sizes, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2).contiguous() for part in parts)
        return q, k, v


def get_inputs():
    return [torch.randn(1, seq, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, kv_heads, head_dim]
