"""A convolution without padding; the sizes are those of the ninth of the twelve layers that Im2win is measured on."""

import torch
from torch import nn

batch = 128
channels = 64
height = 56
across = 56
filters = 64
kernel = 3
stride = 1

VARIANTS = {
    "small": {"batch": 2, "channels": 3, "height": 12, "across": 14, "filters": 16},
    "odd1": {"batch": 1, "channels": 5, "height": 11, "across": 9, "filters": 7, "kernel": 2},
    "odd2": {"batch": 3, "channels": 17, "height": 15, "across": 13, "filters": 33, "kernel": 5, "stride": 2},
    "odd3": {"batch": 2, "channels": 1, "height": 19, "across": 23, "filters": 5, "kernel": 7, "stride": 4},
}


class Model(nn.Module):
    def __init__(self, channels, filters, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch, channels, height, across)]


def get_init_inputs():
    return [channels, filters, kernel, stride]
