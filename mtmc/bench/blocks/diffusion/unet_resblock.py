"""A residual block with a time embedding: GroupNorm, SiLU, convolution, twice, and a pointwise shortcut.

Source: Stable Diffusion 1.5 (arXiv 2112.10752), second level of the UNet: 320 to 640 channels, 32 groups, 32 x 32
places, time width 1280. A batch of 8 in fp16.
"""

import torch
from torch import nn

batch = 8
channels = 320
outer = 640
groups = 32
size = 32
time = 1280

VARIANTS = {
    "small": {"batch": 2, "channels": 8, "outer": 16, "groups": 4, "size": 6, "time": 24},
    "odd1": {"batch": 1, "channels": 9, "outer": 6, "groups": 3, "size": 5, "time": 13},
    "odd2": {"batch": 3, "channels": 5, "outer": 10, "groups": 5, "size": 7, "time": 9},
}


class Model(nn.Module):
    def __init__(self, channels, outer, groups, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, outer)
        self.first = nn.Conv2d(channels, outer, 3, padding=1)
        self.second = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.short = nn.Conv2d(channels, outer, 1)
        self.to(torch.float16)

    def forward(self, x, time):
        inner = self.first(nn.functional.silu(self.norm1(x)))
        inner = inner + self.time(nn.functional.silu(time))[:, :, None, None]
        return self.short(x) + self.second(nn.functional.silu(self.norm2(inner)))


def get_inputs():
    x = torch.randn(batch, channels, size, size, dtype=torch.float16)
    return [x, torch.randn(batch, time, dtype=torch.float16)]


def get_init_inputs():
    return [channels, outer, groups, time]
