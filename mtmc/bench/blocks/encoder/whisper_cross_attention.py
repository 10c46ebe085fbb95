"""Attention from text to frames of sound behind a LayerNorm, with a residual; the key projection has no bias.

Source: Whisper small (arXiv 2212.04356): width 768, 12 heads, 1500 frames, 224 tokens. A batch of 8 in fp16.
"""

import torch
from torch import nn

batch = 8
tokens = 224
frames = 1500
heads = 12
head_dim = 64

VARIANTS = {
    "small": {"batch": 2, "tokens": 12, "frames": 24, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "tokens": 7, "frames": 19, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "tokens": 5, "frames": 13, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        width = heads * head_dim
        self.heads, self.scale = heads, head_dim**-0.25
        self.norm = nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.to(torch.float16)

    def forward(self, x, sound):
        q = (self.query(self.norm(x)) * self.scale).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k = (self.key(sound) * self.scale).unflatten(2, (self.heads, -1)).permute(0, 2, 3, 1)
        v = self.value(sound).unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights = torch.softmax(q @ k, dim=-1, dtype=torch.float32).to(x.dtype)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def get_inputs():
    width = heads * head_dim
    x = torch.randn(batch, tokens, width, dtype=torch.float16)
    return [x, torch.randn(batch, frames, width, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim]
