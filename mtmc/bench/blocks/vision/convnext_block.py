"""A depthwise convolution of 7, LayerNorm over channels, an MLP, a scale for each channel, and the residual.

Source: ConvNeXt-T (arXiv 2201.03545), stage 2: 192 channels, 28 x 28 places. A batch of 32 in fp16.
"""

import torch
from torch import nn

batch = 32
channels = 192
size = 28

VARIANTS = {
    "small": {"batch": 2, "channels": 24, "size": 8},
    "odd1": {"batch": 1, "channels": 13, "size": 9},
    "odd2": {"batch": 3, "channels": 9, "size": 7},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))
        self.to(torch.float16)

    def forward(self, x):
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.scale * self.down(nn.functional.gelu(self.up(inner)))
        return x + inner.permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
