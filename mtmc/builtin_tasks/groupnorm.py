"""Group normalization of images, with weight and bias per channel."""

import torch
from torch import nn

batch = 32
channels = 256
height = 64
width = 64
groups = 32

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "height": 12, "width": 10, "groups": 4},
    "odd1": {"batch": 3, "channels": 15, "height": 7, "width": 11, "groups": 5},
    "odd2": {"batch": 5, "channels": 21, "height": 13, "width": 9, "groups": 3},
    "odd3": {"batch": 7, "channels": 25, "height": 3, "width": 17, "groups": 5},
}


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [2 * torch.randn(batch, channels, height, width) + 1]


def get_init_inputs():
    return [groups, channels]
