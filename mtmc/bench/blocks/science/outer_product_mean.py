"""The mean over an alignment of outer products of two projections, flattened and projected to pairs.

Source: AlphaFold 2 (https://doi.org/10.1038/s41586-021-03819-2, supplementary algorithm 10): 256 channels, 32
hidden, pairs of 128. 128 rows of 128 residues in bf16.
"""

import torch
from torch import nn

rows = 128
residues = 128
channels = 256
hidden = 32
pair = 128

VARIANTS = {
    "small": {"rows": 8, "residues": 6, "channels": 24, "hidden": 8, "pair": 16},
    "odd1": {"rows": 7, "residues": 5, "channels": 13, "hidden": 5, "pair": 9},
    "odd2": {"rows": 3, "residues": 7, "channels": 9, "hidden": 3, "pair": 11},
}


class Model(nn.Module):
    def __init__(self, channels, hidden, pair):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.left, self.right = nn.Linear(channels, hidden), nn.Linear(channels, hidden)
        self.out = nn.Linear(hidden * hidden, pair)
        self.to(torch.bfloat16)

    def forward(self, x, mask):
        normed = self.norm(x)
        left, right = self.left(normed) * mask[..., None], self.right(normed) * mask[..., None]
        outer = torch.einsum("sic,sje->ijce", left, right).flatten(2)
        return self.out(outer) / (mask.T @ mask + 1e-3)[..., None]


def get_inputs():
    mask = (torch.rand(rows, residues) < 0.9).to(torch.bfloat16)
    return [torch.randn(rows, residues, channels, dtype=torch.bfloat16), mask]


def get_init_inputs():
    return [channels, hidden, pair]
