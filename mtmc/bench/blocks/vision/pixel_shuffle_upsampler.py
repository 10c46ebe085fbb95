"""The tail of a super-resolution network: a convolution to four times the channels, their shuffle to pixels, colours.

Source: EDSR baseline (arXiv 1707.02921), scale 2: 64 channels; the shuffle of arXiv 1609.05158. 4 maps of 128 in fp16.
"""

import torch
from torch import nn

batch = 4
channels = 64
size = 128

VARIANTS = {
    "small": {"batch": 2, "channels": 8, "size": 8},
    "odd1": {"batch": 1, "channels": 5, "size": 7},
    "odd2": {"batch": 3, "channels": 3, "size": 9},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.expand = nn.Conv2d(channels, 4 * channels, 3, padding=1)
        self.colours = nn.Conv2d(channels, 3, 3, padding=1)
        self.to(torch.float16)

    def forward(self, x):
        return self.colours(nn.functional.pixel_shuffle(self.expand(x), 2))


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
