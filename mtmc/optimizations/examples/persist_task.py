"""A product of 18 x 8 tiles of 128 x 128: twelve more than an H100 has multiprocessors."""

import torch
from torch import nn

rows = 2304
inner = 8192
cols = 1024

VARIANTS = {
    "small": {"rows": 80, "inner": 96, "cols": 112},
    "odd1": {"rows": 7, "inner": 33, "cols": 17},
    "odd2": {"rows": 150, "inner": 200, "cols": 300},
}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, cols)]


def get_init_inputs():
    return []
