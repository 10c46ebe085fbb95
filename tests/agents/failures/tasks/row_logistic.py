"""The sum of the logistic function over rows that are longer than a block."""

import torch
import torch.nn as nn

rows, cols = 4096, 4000
VARIANTS = {"small": {"rows": 6, "cols": 96}, "odd1": {"rows": 3, "cols": 77}}


class Model(nn.Module):
    def forward(self, x):
        return (1.0 / (1.0 + torch.exp(-x))).sum(-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
