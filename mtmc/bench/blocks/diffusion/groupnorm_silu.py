"""GroupNorm and SiLU over channels that two maps bring side by side: the first step of a block on the way up.

Source: SDXL (arXiv 2307.01952), last level of the UNet: 320 + 320 channels, 32 groups, 128 x 128 places.
A batch of 2 in bf16.
"""

import torch
from torch import nn

batch = 2
channels = 320
groups = 32
size = 128

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "groups": 4, "size": 8},
    "odd1": {"batch": 1, "channels": 9, "groups": 3, "size": 7},
    "odd2": {"batch": 3, "channels": 5, "groups": 5, "size": 9},
}


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, 2 * channels, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)
        self.to(torch.bfloat16)

    def forward(self, x, skip):
        return nn.functional.silu(self.norm(torch.cat((x, skip), dim=1)))


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, x, skip):
        from liger_kernel.ops.group_norm import LigerGroupNormFunction

        joined, norm = torch.cat((x, skip), dim=1), self.norm
        settings = (norm.num_channels, norm.num_groups, norm.eps)
        normed = LigerGroupNormFunction.apply(joined.flatten(2), norm.weight, norm.bias, *settings)
        return nn.functional.silu(normed.view(joined.shape))


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [channels, groups]
