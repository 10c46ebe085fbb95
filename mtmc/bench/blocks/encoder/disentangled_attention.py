"""Attention by content and by relative position, each way with projections of its own, gathered by distance.

Source: DeBERTa base (arXiv 2006.03654, equation 4): 12 heads of 64, scale (3 x 64)^-0.5, distances up to 512.
4 x 512 tokens in fp16.
"""

import torch
from torch import nn

batch = 4
seq = 512
heads = 12
head_dim = 64
farthest = 512

VARIANTS = {
    "small": {"batch": 2, "seq": 16, "heads": 2, "head_dim": 16, "farthest": 8},
    "odd1": {"batch": 1, "seq": 13, "heads": 3, "head_dim": 9, "farthest": 5},
    "odd2": {"batch": 3, "seq": 7, "heads": 2, "head_dim": 11, "farthest": 9},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, farthest):
        super().__init__()
        self.keys = nn.Parameter(torch.randn(heads, 2 * farthest, head_dim))
        self.queries = nn.Parameter(torch.randn(heads, 2 * farthest, head_dim))
        self.farthest, self.scale = farthest, (3 * head_dim) ** -0.5
        self.to(torch.float16)

    def forward(self, q, k, v):
        places = torch.arange(q.shape[2], device=q.device)
        near = (places[:, None] - places[None, :] + self.farthest).clamp(0, 2 * self.farthest - 1)
        index = near.expand(q.shape[0], q.shape[1], -1, -1)
        content_place = torch.gather(q @ self.keys.transpose(1, 2), 3, index)
        place_content = torch.gather(k @ self.queries.transpose(1, 2), 3, index).transpose(2, 3)
        scores = (q @ k.transpose(2, 3) + content_place + place_content) * self.scale
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [0.5 * torch.randn(batch, heads, seq, head_dim, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return [heads, head_dim, farthest]
