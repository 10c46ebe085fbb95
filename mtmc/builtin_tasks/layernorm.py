"""Layer normalization over each row, with weight and bias."""

import torch
from torch import nn

rows = 16384
features = 4096

VARIANTS = {
    "small": {"rows": 24, "features": 320},
    "odd1": {"rows": 7, "features": 33},
    "odd2": {"rows": 13, "features": 129},
    "odd3": {"rows": 31, "features": 517},
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [2 * torch.randn(rows, features) + 1]


def get_init_inputs():
    return [features]
