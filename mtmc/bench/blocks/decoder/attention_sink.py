"""Attention with a learned sink: one more logit a head in the softmax's sum, which takes weight and gives no value.

Source: gpt-oss-20b (arXiv 2508.10925): 64 query heads, 8 key heads of 64. 2048 tokens in bf16.
"""

import torch
from torch import nn

seq = 2048
kv_heads = 8
groups = 8
head_dim = 64

VARIANTS = {
    "small": {"seq": 24, "kv_heads": 2, "groups": 2, "head_dim": 16},
    "odd1": {"seq": 13, "kv_heads": 3, "groups": 1, "head_dim": 9},
    "odd2": {"seq": 11, "kv_heads": 1, "groups": 3, "head_dim": 15},
}


class Model(nn.Module):
    def __init__(self, kv_heads, groups, head_dim):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(kv_heads, groups, 1, 1))
        self.scale = head_dim**-0.5
        self.to(torch.bfloat16)

    def forward(self, q, k, v):
        scores = torch.einsum("hgqd,hkd->hgqk", q, k) * self.scale
        later = torch.triu(scores.new_full((q.shape[2], k.shape[1]), float("-inf")), diagonal=1)
        scores = torch.cat((scores + later, self.sinks.expand(-1, -1, q.shape[2], -1)), dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., :-1]
        return torch.einsum("hgqk,hkd->qhgd", weights, v)


def get_inputs():
    q = torch.randn(kv_heads, groups, seq, head_dim, dtype=torch.bfloat16)
    return [q, *(torch.randn(kv_heads, seq, head_dim, dtype=torch.bfloat16) for _ in range(2))]


def get_init_inputs():
    return [kv_heads, groups, head_dim]
