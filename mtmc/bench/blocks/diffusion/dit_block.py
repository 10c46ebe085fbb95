"""A transformer block whose norms are shifted, scaled and gated by the condition (adaLN-Zero).

Source: DiT-XL/2 (arXiv 2212.09748): width 1152, 16 heads of 72, hidden 4608, 256 tokens. A batch of 8 in fp16.
"""

import torch
from torch import nn

batch = 8
tokens = 256
heads = 16
head_dim = 72
hidden = 4608

VARIANTS = {
    "small": {"batch": 2, "tokens": 12, "heads": 2, "head_dim": 16, "hidden": 64},
    "odd1": {"batch": 1, "tokens": 7, "heads": 3, "head_dim": 9, "hidden": 51},
    "odd2": {"batch": 3, "tokens": 5, "heads": 5, "head_dim": 7, "hidden": 33},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, hidden):
        super().__init__()
        self.heads, self.width = heads, heads * head_dim
        self.modulation = nn.Linear(self.width, 6 * self.width)
        self.qkv, self.out = nn.Linear(self.width, 3 * self.width), nn.Linear(self.width, self.width)
        self.up, self.down = nn.Linear(self.width, hidden), nn.Linear(hidden, self.width)
        self.to(torch.float16)

    def modulated(self, x, shift, scale):
        normed = nn.functional.layer_norm(x, (self.width,), eps=1e-6)
        return normed * (1 + scale[:, None]) + shift[:, None]

    def attention(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x, condition):
        parts = self.modulation(nn.functional.silu(condition)).chunk(6, dim=1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        x = x + gate1[:, None] * self.attention(self.modulated(x, shift1, scale1))
        inner = nn.functional.gelu(self.up(self.modulated(x, shift2, scale2)), approximate="tanh")
        return x + gate2[:, None] * self.down(inner)


def get_inputs():
    width = heads * head_dim
    return [torch.randn(batch, tokens, width, dtype=torch.float16), torch.randn(batch, width, dtype=torch.float16)]


def get_init_inputs():
    return [heads, head_dim, hidden]
