"""A decoder layer whose attention and MLP read the same residual side by side; a quarter of each head is rotated.

Source: GPT-NeoX (arXiv 2204.06745) as Pythia 1.4B (arXiv 2304.01373): width 2048, 16 heads of 128, 32 of them rotated,
MLP of 8192 with GELU, biases everywhere. 2 x 1024 tokens in fp16.
"""

import torch
from torch import nn

batch = 2
seq = 1024
heads = 16
head_dim = 128
rotated = 32

VARIANTS = {
    "small": {"batch": 2, "seq": 16, "heads": 2, "head_dim": 16, "rotated": 4},
    "odd1": {"batch": 1, "seq": 11, "heads": 3, "head_dim": 9, "rotated": 2},
    "odd2": {"batch": 3, "seq": 7, "heads": 2, "head_dim": 11, "rotated": 6},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, rotated):
        super().__init__()
        width = heads * head_dim
        self.heads, self.head_dim, self.rotated = heads, head_dim, rotated
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.to(torch.float16)
        self.register_buffer("frequencies", 10000 ** (-torch.arange(0, rotated, 2).float() / rotated))

    def turned(self, x):
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.frequencies
        cos, sin = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
        part, rest = x[..., : self.rotated], x[..., self.rotated :]
        first, second = part.chunk(2, dim=-1)
        return torch.cat((part * cos + torch.cat((-second, first), dim=-1) * sin, rest), dim=-1)

    def forward(self, x):
        rows = self.qkv(self.norm1(x)).view(x.shape[0], x.shape[1], self.heads, 3 * self.head_dim).transpose(1, 2)
        q, k, v = rows.chunk(3, dim=-1)
        heads = nn.functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        attention = self.out(heads.transpose(1, 2).flatten(2))
        return x + attention + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def get_inputs():
    return [torch.randn(batch, seq, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, rotated]
