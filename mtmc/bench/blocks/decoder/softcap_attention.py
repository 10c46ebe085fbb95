"""Causal attention whose scores are capped by a tanh before the softmax.

Source: Gemma 2 9B (arXiv 2408.00118): 16 query heads, 8 key heads of 256, scale 256^-0.5, cap 50. 2048 tokens in bf16.
"""

import torch
from torch import nn

seq = 2048
heads = 16
kv_heads = 8
head_dim = 256

VARIANTS = {
    "small": {"seq": 24, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"seq": 11, "heads": 3, "kv_heads": 1, "head_dim": 9},
    "odd2": {"seq": 17, "heads": 6, "kv_heads": 2, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, groups, scale, cap):
        super().__init__()
        self.groups, self.scale, self.cap = groups, scale, cap

    def forward(self, q, k, v):
        k, v = k.repeat_interleave(self.groups, dim=1), v.repeat_interleave(self.groups, dim=1)
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        scores = torch.tanh(scores / self.cap) * self.cap
        later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")).float(), dim=-1)
        return torch.matmul(weights.to(q.dtype), v)


def get_inputs():
    q = torch.randn(1, heads, seq, head_dim, dtype=torch.bfloat16)
    k = torch.randn(1, kv_heads, seq, head_dim, dtype=torch.bfloat16)
    v = torch.randn(1, kv_heads, seq, head_dim, dtype=torch.bfloat16)
    return [q, k, v]


def get_init_inputs():
    return [heads // kv_heads, 256**-0.5, 50.0]
