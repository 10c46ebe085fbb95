"""Rotary position embedding of queries and keys, in halves, from tables of cosines and sines.

Source: RoPE (arXiv 2104.09864) in Llama 3 8B (arXiv 2407.21783): 32 query heads, 8 key heads of 128, base 500000.
A prefill of 2 x 4096 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 4096
heads = 32
kv_heads = 8
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "seq": 12, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"batch": 3, "seq": 7, "heads": 3, "kv_heads": 1, "head_dim": 10},
    "odd2": {"batch": 1, "seq": 19, "heads": 5, "kv_heads": 3, "head_dim": 6},
}


class Model(nn.Module):
    def __init__(self, head_dim, base):
        super().__init__()
        self.register_buffer("frequencies", base ** (-torch.arange(0, head_dim, 2).float() / head_dim))

    def forward(self, q, k, positions):
        angles = positions.float()[:, :, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return q * cos + self.half_turn(q) * sin, k * cos + self.half_turn(k) * sin

    def half_turn(self, x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, q, k, positions):
        from liger_kernel.ops.rope import LigerRopeFunction

        angles = positions.float()[:, :, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return LigerRopeFunction.apply(q, k, angles.cos().to(q.dtype), angles.sin().to(q.dtype))


def get_inputs():
    q = torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16)
    k = torch.randn(batch, kv_heads, seq, head_dim, dtype=torch.bfloat16)
    return [q, k, torch.randint(0, 4096, (batch, 1)) + torch.arange(seq)]


def get_init_inputs():
    return [head_dim, 500000.0]
