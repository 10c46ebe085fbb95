"""Attention of image places to the tokens of a text, from a map with channels first, with its residual.

Source: Stable Diffusion 1.5 (arXiv 2112.10752), first level: 320 channels at 64 x 64, 8 heads of 40, 77 tokens of
width 768. A batch of 4 in fp16.
"""

import torch
from torch import nn

batch = 4
size = 64
heads = 8
head_dim = 40
tokens = 77
text = 768

VARIANTS = {
    "small": {"batch": 2, "size": 4, "heads": 2, "head_dim": 16, "tokens": 8, "text": 24},
    "odd1": {"batch": 1, "size": 5, "heads": 3, "head_dim": 9, "tokens": 7, "text": 13},
    "odd2": {"batch": 3, "size": 3, "heads": 5, "head_dim": 7, "tokens": 11, "text": 21},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, text):
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(text, 2 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.to(torch.float16)

    def forward(self, x, words):
        rows = x.flatten(2).mT
        q = self.q(self.norm(rows)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(words).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        rows = rows + self.out(heads.transpose(1, 2).flatten(2))
        return rows.mT.unflatten(2, x.shape[2:])


def get_inputs():
    x = torch.randn(batch, heads * head_dim, size, size, dtype=torch.float16)
    return [x, torch.randn(batch, tokens, text, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, text]
