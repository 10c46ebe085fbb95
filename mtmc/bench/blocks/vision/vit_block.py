"""A block of a vision transformer: LayerNorm, attention over patches and a class token, LayerNorm, MLP.

Source: ViT-B/16 (arXiv 2010.11929): width 768, 12 heads, hidden 3072, 197 tokens. A batch of 32 in fp16.
"""

import torch
from torch import nn

batch = 32
tokens = 197
heads = 12
head_dim = 64
hidden = 3072

VARIANTS = {
    "small": {"batch": 2, "tokens": 17, "heads": 2, "head_dim": 16, "hidden": 64},
    "odd1": {"batch": 3, "tokens": 5, "heads": 3, "head_dim": 9, "hidden": 51},
    "odd2": {"batch": 1, "tokens": 11, "heads": 5, "head_dim": 7, "hidden": 33},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, hidden):
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.to(torch.float16)

    def forward(self, x):
        batch, tokens, width = x.shape
        rows = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


def get_inputs():
    return [torch.randn(batch, tokens, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, hidden]
