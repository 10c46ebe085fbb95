"""Latent attention of one token with the key and value matrices absorbed: all heads read one cache of latents.

Source: DeepSeek-V3 (arXiv 2412.19437): 128 heads, latent 512, 128 plain and 64 rotated key dimensions, 128 value
dimensions. 16 sequences with 2048 cached tokens in bf16.
"""

import torch
from torch import nn

batch = 16
cached = 2048
heads = 128
latent = 512
plain = 128
rotated = 64

VARIANTS = {
    "small": {"batch": 2, "cached": 24, "heads": 4, "latent": 32, "plain": 16, "rotated": 8},
    "odd1": {"batch": 3, "cached": 13, "heads": 3, "latent": 21, "plain": 9, "rotated": 5},
    "odd2": {"batch": 1, "cached": 19, "heads": 5, "latent": 15, "plain": 7, "rotated": 3},
}


class Model(nn.Module):
    def __init__(self, heads, latent, plain, rotated):
        super().__init__()
        self.keys = nn.Parameter(torch.randn(heads, plain, latent) * plain**-0.5)
        self.values = nn.Parameter(torch.randn(heads, latent, plain) * latent**-0.5)
        self.scale = (plain + rotated) ** -0.5
        self.to(torch.bfloat16)

    def forward(self, q, q_rotated, cache, cache_rotated):
        absorbed = torch.einsum("bhd,hdl->bhl", q, self.keys)
        scores = absorbed @ cache.transpose(1, 2) + q_rotated @ cache_rotated.transpose(1, 2)
        weights = torch.softmax(scores.float() * self.scale, dim=-1).to(q.dtype)
        return torch.einsum("bhl,hld->bhd", weights @ cache, self.values)


def get_inputs():
    q = torch.randn(batch, heads, plain, dtype=torch.bfloat16)
    q_rotated = torch.randn(batch, heads, rotated, dtype=torch.bfloat16)
    cache = torch.randn(batch, cached, latent, dtype=torch.bfloat16)
    return [q, q_rotated, cache, torch.randn(batch, cached, rotated, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, latent, plain, rotated]
