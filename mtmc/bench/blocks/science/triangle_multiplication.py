"""The update of a map of pairs by its outgoing edges: two gated projections multiplied over a third residue, a norm, a
gate.

Source: AlphaFold 2 (https://doi.org/10.1038/s41586-021-03819-2, supplementary algorithm 11): 128 channels, 128
hidden. 256 residues in bf16.
"""

import torch
from torch import nn

residues = 256
channels = 128
hidden = 128

VARIANTS = {
    "small": {"residues": 12, "channels": 16, "hidden": 24},
    "odd1": {"residues": 7, "channels": 13, "hidden": 9},
    "odd2": {"residues": 5, "channels": 21, "hidden": 11},
}


class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(channels), nn.LayerNorm(hidden)
        self.left, self.right, self.left_gate, self.right_gate = (nn.Linear(channels, hidden) for _ in range(4))
        self.gate, self.out = nn.Linear(channels, channels), nn.Linear(hidden, channels)
        self.to(torch.bfloat16)

    def forward(self, pairs, mask):
        x = self.norm(pairs)
        left = mask[..., None] * torch.sigmoid(self.left_gate(x)) * self.left(x)
        right = mask[..., None] * torch.sigmoid(self.right_gate(x)) * self.right(x)
        joined = torch.einsum("ikc,jkc->ijc", left, right)
        return torch.sigmoid(self.gate(x)) * self.out(self.out_norm(joined))


def get_inputs():
    pairs = torch.randn(residues, residues, channels, dtype=torch.bfloat16)
    return [pairs, (torch.rand(residues, residues) < 0.9).to(torch.bfloat16)]


def get_init_inputs():
    return [channels, hidden]
