"""Two convolutions with a mish between them."""

import torch
from torch import nn

batch = 32
channels = 64
size = 128

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "size": 12},
    "odd1": {"batch": 1, "channels": 5, "size": 9},
    "odd2": {"batch": 3, "channels": 17, "size": 7},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.second(nn.functional.mish(self.first(x)))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels]
