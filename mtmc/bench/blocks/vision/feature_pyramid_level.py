"""One level of a feature pyramid: a pointwise convolution of the map, the level above it enlarged and added, a 3 x 3.

Source: FPN (arXiv 1612.03144) on stage 4 of ResNet-50: 1024 channels to 256, 50 x 64 places. A batch of 8 in fp16.
"""

import torch
from torch import nn

batch = 8
channels = 1024
inner = 256
height = 25
width = 32

VARIANTS = {
    "small": {"batch": 2, "channels": 24, "inner": 16, "height": 3, "width": 4},
    "odd1": {"batch": 1, "channels": 13, "inner": 7, "height": 5, "width": 3},
    "odd2": {"batch": 3, "channels": 9, "inner": 11, "height": 1, "width": 5},
}


class Model(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.lateral = nn.Conv2d(channels, inner, 1)
        self.smooth = nn.Conv2d(inner, inner, 3, padding=1)
        self.to(torch.float16)

    def forward(self, x, above):
        merged = self.lateral(x) + nn.functional.interpolate(above, scale_factor=2.0, mode="nearest")
        return self.smooth(merged), merged


def get_inputs():
    x = torch.randn(batch, channels, 2 * height, 2 * width, dtype=torch.float16)
    return [x, torch.randn(batch, inner, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels, inner]
