"""Causal attention with a bias that falls with the distance, at a slope of each head's own.

Source: ALiBi (arXiv 2108.12409) in MPT-7B (configuration of the release): 32 heads of 128, slopes 2^(-8 (h + 1) / 32).
2048 tokens in bf16.
"""

import torch
from torch import nn

batch = 1
seq = 2048
heads = 32
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "heads": 4, "head_dim": 16},
    "odd1": {"batch": 1, "seq": 13, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "seq": 11, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5
        self.register_buffer("slopes", 2 ** (-8 * (torch.arange(heads).float() + 1) / heads))

    def forward(self, q, k, v):
        places = torch.arange(q.shape[2], device=q.device)
        distance = places[None, :] - places[:, None]
        bias = self.slopes[:, None, None] * distance
        bias = bias.masked_fill(distance > 0, float("-inf"))
        scores = (q @ k.transpose(-2, -1)).float() * self.scale + bias
        return torch.softmax(scores, dim=-1).to(v.dtype) @ v


def get_inputs():
    return [torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [heads, head_dim]
