"""Attention over image and text together, each with weights of its own and RMSNorm of its queries and keys.

Source: MM-DiT of Stable Diffusion 3 (arXiv 2403.03206): width 1536, 24 heads of 64, 1024 image and 154 text tokens.
A batch of 2 in bf16.
"""

import torch
from torch import nn

batch = 2
places = 1024
words = 154
heads = 24
head_dim = 64

VARIANTS = {
    "small": {"batch": 2, "places": 12, "words": 6, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "places": 9, "words": 7, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "places": 5, "words": 3, "heads": 5, "head_dim": 7},
}


class Stream(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.RMSNorm(head_dim, eps=1e-6), nn.RMSNorm(head_dim, eps=1e-6)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).unbind(2)
        return self.q_norm(q), self.k_norm(k), v


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.image, self.text = Stream(heads, head_dim), Stream(heads, head_dim)
        self.to(torch.bfloat16)

    def forward(self, image, text):
        parts = zip(self.text(text), self.image(image), strict=True)
        q, k, v = (torch.cat(each, dim=1).transpose(1, 2) for each in parts)
        rows = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.image.out(rows[:, text.shape[1] :]), self.text.out(rows[:, : text.shape[1]])


def get_inputs():
    width = heads * head_dim
    image = torch.randn(batch, places, width, dtype=torch.bfloat16)
    return [image, torch.randn(batch, words, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim]
