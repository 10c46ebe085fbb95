"""A product of fp16 matrices."""

import torch
from torch import nn

rows = 4096
inner = 4096
cols = 4096

VARIANTS = {
    "small": {"rows": 80, "inner": 96, "cols": 112},
    "odd1": {"rows": 7, "inner": 33, "cols": 17},
    "odd2": {"rows": 130, "inner": 40, "cols": 51},
}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner).half(), torch.randn(inner, cols).half()]


def get_init_inputs():
    return []
