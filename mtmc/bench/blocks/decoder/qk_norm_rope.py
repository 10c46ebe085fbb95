"""RMSNorm of each head of queries and keys after one projection, then the rotary embedding: all before attention.

Source: Qwen3 0.6B (arXiv 2505.09388): width 1024, 16 query heads, 8 key heads of 128, base 1000000, epsilon 1e-6.
4096 tokens in bf16.
"""

import torch
from torch import nn

seq = 4096
width = 1024
heads = 16
kv_heads = 8
head_dim = 128

VARIANTS = {
    "small": {"seq": 24, "width": 48, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"seq": 7, "width": 33, "heads": 3, "kv_heads": 1, "head_dim": 10},
    "odd2": {"seq": 13, "width": 21, "heads": 5, "kv_heads": 3, "head_dim": 6},
}


class Model(nn.Module):
    def __init__(self, width, heads, kv_heads, head_dim, base):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.project = nn.Linear(width, (heads + kv_heads) * head_dim, bias=False)
        self.q_weight = nn.Parameter(torch.rand(head_dim) + 0.5)
        self.k_weight = nn.Parameter(torch.rand(head_dim) + 0.5)
        self.to(torch.bfloat16)
        self.register_buffer("frequencies", base ** (-torch.arange(0, head_dim, 2).float() / head_dim))

    def forward(self, x):
        rows = self.project(x).view(x.shape[0], self.heads + self.kv_heads, self.head_dim)
        q, k = rows.split((self.heads, self.kv_heads), dim=1)
        return self.turned(q, self.q_weight), self.turned(k, self.k_weight)

    def turned(self, x, weight):
        x = nn.functional.rms_norm(x, (self.head_dim,), weight, 1e-6)
        angles = torch.arange(x.shape[0], device=x.device)[:, None, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        left, right = x.float().chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


def get_inputs():
    return [torch.randn(seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, heads, kv_heads, head_dim, 1e6]
