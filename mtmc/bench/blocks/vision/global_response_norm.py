"""Global response normalization: each channel's norm over the map, beside the mean of all, scales that channel.

Source: ConvNeXt V2 base (arXiv 2301.00808), stage 3: 4 x 512 channels, 14 x 14 places, channels last. A batch of 64
in fp16.
"""

import torch
from torch import nn

batch = 64
size = 14
channels = 2048

VARIANTS = {
    "small": {"batch": 2, "size": 6, "channels": 64},
    "odd1": {"batch": 3, "size": 5, "channels": 33},
    "odd2": {"batch": 1, "size": 7, "channels": 51},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) - 0.5)
        self.shift = nn.Parameter(torch.rand(channels) - 0.5)
        self.to(torch.float16)

    def forward(self, x):
        strength = torch.linalg.vector_norm(x.float(), dim=(1, 2), keepdim=True)
        share = (strength / (strength.mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return self.scale * (x * share) + self.shift + x


def get_inputs():
    return [torch.randn(batch, size, size, channels, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
