"""Two linear layers with GELU between them."""

import torch
from torch import nn

rows = 8192
in_features = 1024
hidden = 4096
out_features = 1024

VARIANTS = {
    "small": {"rows": 48, "in_features": 64, "hidden": 80, "out_features": 72},
    "odd1": {"rows": 7, "in_features": 33, "hidden": 17, "out_features": 9},
    "odd2": {"rows": 37, "in_features": 19, "hidden": 65, "out_features": 27},
    "odd3": {"rows": 13, "in_features": 5, "hidden": 51, "out_features": 35},
}


class Model(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.up = nn.Linear(in_features, hidden)
        self.down = nn.Linear(hidden, out_features)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(rows, in_features)]


def get_init_inputs():
    return [in_features, hidden, out_features]
