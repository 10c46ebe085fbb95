"""A matrix product in float16."""

import torch
from torch import nn

m = 128
k = 256
n = 128

VARIANTS = {"small": {"m": 40, "k": 96, "n": 48}, "odd1": {"m": 7, "k": 33, "n": 17}}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(m, k, dtype=torch.float16), torch.randn(k, n, dtype=torch.float16)]


def get_init_inputs():
    return []
