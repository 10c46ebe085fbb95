"""A residual bottleneck whose shortcut is a convolution at stride 2; BatchNorm in inference, ReLU.

Source: ResNet-50 (arXiv 1512.03385), first block of stage 3, stride in the 3 x 3: 256 channels at 56 x 56 to 512 at
28 x 28. A batch of 32 in fp16.
"""

import torch
from torch import nn

batch = 32
channels = 256
inner = 128
outer = 512
size = 56

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "inner": 8, "outer": 32, "size": 8},
    "odd1": {"batch": 1, "channels": 11, "inner": 5, "outer": 21, "size": 7},
    "odd2": {"batch": 3, "channels": 7, "inner": 9, "outer": 13, "size": 5},
}


class Norm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(channels) + 0.5), nn.Parameter(torch.rand(channels) - 0.5)
        self.register_buffer("mean", 0.1 * torch.randn(channels))
        self.register_buffer("variance", torch.rand(channels) + 0.5)

    def forward(self, x):
        return nn.functional.batch_norm(x, self.mean, self.variance, self.scale, self.shift)


class Model(nn.Module):
    def __init__(self, channels, inner, outer):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(channels, inner, 1, bias=False), Norm(inner)
        self.second, self.norm2 = nn.Conv2d(inner, inner, 3, stride=2, padding=1, bias=False), Norm(inner)
        self.third, self.norm3 = nn.Conv2d(inner, outer, 1, bias=False), Norm(outer)
        self.short, self.norm4 = nn.Conv2d(channels, outer, 1, stride=2, bias=False), Norm(outer)
        self.to(torch.float16)

    def forward(self, x):
        inside = torch.relu(self.norm1(self.first(x)))
        inside = torch.relu(self.norm2(self.second(inside)))
        return torch.relu(self.norm3(self.third(inside)) + self.norm4(self.short(x)))


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [channels, inner, outer]
