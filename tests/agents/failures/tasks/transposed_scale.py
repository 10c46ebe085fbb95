"""Twice the transposed matrix, laid out by rows."""

import torch
from torch import nn

rows = 512
cols = 1000

VARIANTS = {"small": {"rows": 6, "cols": 96}, "odd1": {"rows": 3, "cols": 77}}


class Model(nn.Module):
    def forward(self, x):
        return (2.0 * x.t()).contiguous()


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
