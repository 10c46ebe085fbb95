"""A token mixer without weights: the mean of the neighbours less the token itself, scaled, behind a norm of one group.

Source: PoolFormer-S24 (arXiv 2111.11418), stage 2: 128 channels, 28 x 28 places, pools of 3. A batch of 64 in fp16.
"""

import torch
from torch import nn

batch = 64
channels = 128
size = 28

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "size": 8},
    "odd1": {"batch": 1, "channels": 13, "size": 9},
    "odd2": {"batch": 3, "channels": 7, "size": 5},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.pool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))
        self.to(torch.float16)

    def forward(self, x):
        normed = self.norm(x)
        return x + self.scale * (self.pool(normed) - normed)


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
