"""A linear layer whose weight lies in memory as whole numbers of eight bits and a scale."""

import torch
from torch import nn

rows = 16
inputs = 4096
features = 4096

VARIANTS = {
    "small": {"rows": 8, "inputs": 32, "features": 48},
    "odd1": {"rows": 3, "inputs": 17, "features": 33},
    "odd2": {"rows": 9, "inputs": 40, "features": 5},
}


class Model(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (features, inputs), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(features, 1).half() / 1024)

    def forward(self, x):
        return x @ (self.weight.half() * self.scale).t()


def get_inputs():
    return [torch.randn(rows, inputs).half()]


def get_init_inputs():
    return [inputs, features]
