"""Keys and values from a low-rank latent: down, RMSNorm, up by heads, and one rotated key part that all heads share.

Source: DeepSeek-V2-Lite (arXiv 2405.04434): width 2048, latent 512, 16 heads, 128 plain and 64 rotated key dimensions,
128 value dimensions; pairs that lie side by side are rotated. 4096 tokens in bf16.
"""

import torch
from torch import nn

seq = 4096
width = 2048
latent = 512
heads = 16
plain = 128
rotated = 64

VARIANTS = {
    "small": {"seq": 16, "width": 48, "latent": 32, "heads": 2, "plain": 16, "rotated": 8},
    "odd1": {"seq": 7, "width": 33, "latent": 21, "heads": 3, "plain": 9, "rotated": 6},
    "odd2": {"seq": 11, "width": 27, "latent": 13, "heads": 5, "plain": 7, "rotated": 2},
}


class Model(nn.Module):
    def __init__(self, width, latent, heads, plain, rotated):
        super().__init__()
        self.latent, self.heads, self.plain, self.rotated = latent, heads, plain, rotated
        self.down = nn.Linear(width, latent + rotated, bias=False)
        self.weight = nn.Parameter(torch.rand(latent) + 0.5)
        self.up = nn.Linear(latent, heads * 2 * plain, bias=False)
        self.to(torch.bfloat16)
        self.register_buffer("frequencies", 10000 ** (-torch.arange(0, rotated, 2).float() / rotated))

    def forward(self, x):
        latent, shared = self.down(x).split((self.latent, self.rotated), dim=-1)
        latent = nn.functional.rms_norm(latent, (self.latent,), self.weight, 1e-6)
        keys, values = self.up(latent).view(-1, self.heads, 2 * self.plain).split(self.plain, dim=-1)
        angles = torch.arange(x.shape[0], device=x.device)[:, None] * self.frequencies
        even, odd = shared.float().unflatten(-1, (-1, 2)).unbind(-1)
        pairs = torch.stack(
            (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), dim=-1
        )
        shared = pairs.flatten(-2).to(x.dtype)[:, None].expand(-1, self.heads, -1)
        return torch.cat((keys, shared), dim=-1), values


def get_inputs():
    return [torch.randn(seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, latent, heads, plain, rotated]
