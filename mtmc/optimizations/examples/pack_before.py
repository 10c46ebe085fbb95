"""The weight is converted and scaled at each call, and the product reads the result."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (features, inputs), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(features, 1).half() / 1024)

    def forward(self, x):
        return x @ (self.weight.half() * self.scale).t()
