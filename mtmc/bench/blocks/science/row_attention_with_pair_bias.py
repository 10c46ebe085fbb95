"""Gated attention along the rows of an alignment, with a bias from the map of pairs that all rows share.

Source: AlphaFold 2 (https://doi.org/10.1038/s41586-021-03819-2, supplementary algorithm 7): 256 channels, 8 heads
of 32, pairs of 128. 64 rows of 256 residues in bf16.
"""

import torch
from torch import nn

rows = 64
residues = 256
channels = 256
heads = 8
head_dim = 32
pair = 128

VARIANTS = {
    "small": {"rows": 2, "residues": 12, "channels": 24, "heads": 2, "head_dim": 16, "pair": 16},
    "odd1": {"rows": 3, "residues": 7, "channels": 21, "heads": 3, "head_dim": 9, "pair": 13},
    "odd2": {"rows": 1, "residues": 11, "channels": 13, "heads": 5, "head_dim": 7, "pair": 9},
}


class Model(nn.Module):
    def __init__(self, channels, heads, head_dim, pair):
        super().__init__()
        self.heads, self.scale = heads, head_dim**-0.5
        self.norm, self.pair_norm = nn.LayerNorm(channels), nn.LayerNorm(pair)
        self.qkv = nn.Linear(channels, 3 * heads * head_dim, bias=False)
        self.bias = nn.Linear(pair, heads, bias=False)
        self.gate = nn.Linear(channels, heads * head_dim)
        self.out = nn.Linear(heads * head_dim, channels)
        self.to(torch.bfloat16)

    def forward(self, x, pairs):
        x = self.norm(x)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        scores = torch.einsum("sihc,sjhc->shij", q * self.scale, k)
        scores = scores + self.bias(self.pair_norm(pairs)).permute(2, 0, 1)
        read = torch.einsum("shij,sjhc->sihc", torch.softmax(scores, dim=-1), v)
        return self.out(torch.sigmoid(self.gate(x)) * read.flatten(-2))


def get_inputs():
    x = torch.randn(rows, residues, channels, dtype=torch.bfloat16)
    return [x, torch.randn(residues, residues, pair, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, heads, head_dim, pair]
