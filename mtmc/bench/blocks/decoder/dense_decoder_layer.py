"""A whole decoder layer: RMSNorm, rotary grouped-query attention, RMSNorm, SwiGLU.

Source: Llama 3.2 1B (configuration of the release; architecture of arXiv 2407.21783): width 2048, 32 query heads
and 8 key heads of 64, hidden 8192, base 500000. 2048 tokens in bf16.
"""

import torch
from torch import nn

seq = 2048
heads = 32
kv_heads = 8
head_dim = 64
hidden = 8192

VARIANTS = {
    "small": {"seq": 16, "heads": 4, "kv_heads": 2, "head_dim": 8, "hidden": 48},
    "odd1": {"seq": 11, "heads": 3, "kv_heads": 1, "head_dim": 10, "hidden": 33},
    "odd2": {"seq": 13, "heads": 6, "kv_heads": 2, "head_dim": 6, "hidden": 51},
}


class Model(nn.Module):
    def __init__(self, heads, kv_heads, head_dim, hidden):
        super().__init__()
        width = heads * head_dim
        self.heads, self.kv_heads, self.head_dim, self.width = heads, kv_heads, head_dim, width
        self.norm1, self.norm2 = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * head_dim, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.to(torch.bfloat16)
        self.register_buffer("frequencies", 500000 ** (-torch.arange(0, head_dim, 2).float() / head_dim))

    def turned(self, x):
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)

    def attention(self, x):
        q = self.turned(self.q(x).view(1, -1, self.heads, self.head_dim).transpose(1, 2))
        k = self.turned(self.k(x).view(1, -1, self.kv_heads, self.head_dim).transpose(1, 2))
        v = self.v(x).view(1, -1, self.kv_heads, self.head_dim).transpose(1, 2)
        k, v = (each.repeat_interleave(self.heads // self.kv_heads, dim=1) for each in (k, v))
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(heads.transpose(1, 2).reshape(1, -1, self.width))

    def forward(self, x):
        x = x + self.attention(nn.functional.rms_norm(x, (self.width,), self.norm1, 1e-5))
        normed = nn.functional.rms_norm(x, (self.width,), self.norm2, 1e-5)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


def get_inputs():
    return [torch.randn(1, seq, heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, kv_heads, head_dim, hidden]
