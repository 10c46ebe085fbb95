"""A residual block: x plus a linear layer of GELU of layer normalization."""

import torch
from torch import nn

rows = 8192
features = 2048

VARIANTS = {
    "small": {"rows": 48, "features": 96},
    "odd1": {"rows": 7, "features": 33},
    "odd2": {"rows": 37, "features": 19},
    "odd3": {"rows": 13, "features": 65},
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return x + self.linear(nn.functional.gelu(self.norm(x)))


def get_inputs():
    return [2 * torch.randn(rows, features) + 1]


def get_init_inputs():
    return [features]
