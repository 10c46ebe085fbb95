"""Attention of the class token alone over all patches, with a scale for each channel of the residual.

Source: CaiT-S24 (arXiv 2103.17239): width 384, 8 heads, 196 patches, first scale 1e-5 (here 0.1, so that it counts).
A batch of 128 in fp16.
"""

import torch
from torch import nn

batch = 128
patches = 196
heads = 8
head_dim = 48

VARIANTS = {
    "small": {"batch": 2, "patches": 20, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 3, "patches": 7, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 1, "patches": 13, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        width = heads * head_dim
        self.heads, self.rate = heads, head_dim**-0.5
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self.to(torch.float16)

    def forward(self, first, patches):
        rows = self.norm(torch.cat((first, patches), dim=1))
        q = self.q(rows[:, 0]).unflatten(1, (self.heads, -1))[:, :, None]
        k = self.k(rows).unflatten(2, (self.heads, -1)).transpose(1, 2)
        v = self.v(rows).unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights = torch.softmax((q * self.rate) @ k.mT, dim=-1)
        return first + self.scale * self.out((weights @ v).transpose(1, 2).flatten(2))


def get_inputs():
    width = heads * head_dim
    first = torch.randn(batch, 1, width, dtype=torch.float16)
    return [first, torch.randn(batch, patches, width, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim]
