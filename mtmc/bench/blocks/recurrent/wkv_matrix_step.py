"""A step of a matrix-valued state that decays by channel: the reading with a bonus for the new pair, and a group norm.

Source: Finch, RWKV-6 1.6B (arXiv 2404.05892): 32 heads of 64. 128 sequences; state in float32, the rest in bf16.
"""

import torch
from torch import nn

batch = 128
heads = 32
head_dim = 64

VARIANTS = {
    "small": {"batch": 2, "heads": 4, "head_dim": 16},
    "odd1": {"batch": 1, "heads": 3, "head_dim": 13},
    "odd2": {"batch": 3, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.bonus = nn.Parameter(torch.randn(heads, head_dim))
        self.norm = nn.GroupNorm(heads, heads * head_dim, eps=64e-5)
        self.to(torch.bfloat16)

    def forward(self, r, k, v, w, gate, state):
        pair = (k[..., :, None] * v[..., None, :]).float()
        read = r.float()[..., None, :] @ (state + self.bonus.float()[..., None] * pair)
        state = torch.exp(-torch.exp(w.float()))[..., None] * state + pair
        y = self.norm(read.squeeze(-2).flatten(1).to(r.dtype))
        return y * nn.functional.silu(gate), state


def get_inputs():
    r, k, v, w = (torch.randn(batch, heads, head_dim, dtype=torch.bfloat16) for _ in range(4))
    gate = torch.randn(batch, heads * head_dim, dtype=torch.bfloat16)
    return [r, k, v, w, gate, torch.randn(batch, heads, head_dim, head_dim)]


def get_init_inputs():
    return [heads, head_dim]
