"""Sum of each of a few long rows."""

import torch
from torch import nn

rows = 64
cols = 2097152

VARIANTS = {
    "small": {"rows": 3, "cols": 24000},
    "odd1": {"rows": 7, "cols": 33},
    "odd2": {"rows": 2, "cols": 9001},
}


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
