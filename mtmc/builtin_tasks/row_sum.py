"""The sum of each of a few very long rows."""

import torch
from torch import nn

rows = 64
cols = 2097152

VARIANTS = {
    "small": {"rows": 12, "cols": 1200},
    "odd1": {"rows": 7, "cols": 33},
    "odd2": {"rows": 5, "cols": 1025},
    "odd3": {"rows": 13, "cols": 517},
}


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=-1)


def get_inputs():
    return [torch.rand(rows, cols)]


def get_init_inputs():
    return []
