"""A map enlarged twice by its nearest places, a convolution, GroupNorm and SiLU: a step of an image decoder.

Source: the autoencoder of Stable Diffusion (arXiv 2112.10752): 512 channels, 64 x 64 to 128 x 128, 32 groups,
epsilon 1e-6. A batch of 2 in bf16.
"""

import torch
from torch import nn

batch = 2
channels = 512
groups = 32
size = 64

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "groups": 4, "size": 5},
    "odd1": {"batch": 1, "channels": 9, "groups": 3, "size": 3},
    "odd2": {"batch": 3, "channels": 6, "groups": 1, "size": 4},
}


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.convolve = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.to(torch.bfloat16)

    def forward(self, x):
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        x = self.norm(self.convolve(x))
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, groups]
