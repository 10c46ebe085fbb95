"""Rows divided by their root mean square, times a weight."""

import torch
from torch import nn

rows = 512
cols = 1000

VARIANTS = {"small": {"rows": 6, "cols": 96}, "odd1": {"rows": 3, "cols": 77}}


class Model(nn.Module):
    def __init__(self, cols, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols, 1e-5]
