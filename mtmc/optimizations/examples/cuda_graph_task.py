"""Eight small layers, each with a tanh: short kernels, one after the other."""

import torch
from torch import nn

rows = 64
width = 256
layers = 8

VARIANTS = {
    "small": {"rows": 9, "width": 24},
    "odd1": {"rows": 5, "width": 17},
    "odd2": {"rows": 33, "width": 40},
}


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, layers]
