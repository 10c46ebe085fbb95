"""A batch of matrix products."""

import torch
from torch import nn

batch = 64
m = 1024
k = 512
n = 1024

VARIANTS = {
    "small": {"batch": 3, "m": 48, "k": 40, "n": 56},
    "odd1": {"batch": 5, "m": 7, "k": 33, "n": 17},
    "odd2": {"batch": 3, "m": 37, "k": 19, "n": 29},
    "odd3": {"batch": 7, "m": 11, "k": 65, "n": 3},
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch, m, k), torch.randn(batch, k, n)]


def get_init_inputs():
    return []
