"""A transformer block: multi-head attention and an MLP, each behind a layer normalization."""

import torch
from torch import nn

batch = 8
seq = 1024
heads = 16
head_dim = 64
hidden = 4096

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "heads": 4, "head_dim": 8, "hidden": 48},
    "odd1": {"batch": 3, "seq": 11, "heads": 5, "head_dim": 7, "hidden": 65},
    "odd2": {"batch": 5, "seq": 17, "heads": 3, "head_dim": 9, "hidden": 51},
    "odd3": {"batch": 7, "seq": 13, "heads": 3, "head_dim": 5, "hidden": 77},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, hidden):
        super().__init__()
        dim = heads * head_dim
        self.heads = heads
        self.head_dim = head_dim
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)

    def attention(self, x):
        batch, seq, dim = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) * self.head_dim**-0.5, dim=-1)
        return self.proj((scores @ v).transpose(1, 2).reshape(batch, seq, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def get_inputs():
    return [torch.randn(batch, seq, heads * head_dim)]


def get_init_inputs():
    return [heads, head_dim, hidden]
