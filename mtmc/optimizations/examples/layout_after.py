"""Channels last: the input is permuted once, the small weights in each call; the result is left as it is."""

import torch
from torch import nn


def convolve(x, convolution):
    weight = convolution.weight.contiguous(memory_format=torch.channels_last)
    return nn.functional.conv2d(x, weight, convolution.bias, padding=1)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        return convolve(nn.functional.mish(convolve(x, self.first)), self.second)
