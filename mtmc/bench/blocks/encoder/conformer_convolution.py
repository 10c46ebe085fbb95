"""The convolution module: LayerNorm, gated pointwise, depthwise over time, BatchNorm in inference, swish, pointwise.

Source: Conformer L (arXiv 2005.08100): width 512, a kernel of 31 (32 there, odd here). 8 x 1000 frames in fp16.
"""

import torch
from torch import nn

batch = 8
frames = 1000
width = 512
kernel = 31

VARIANTS = {
    "small": {"batch": 2, "frames": 24, "width": 32, "kernel": 7},
    "odd1": {"batch": 1, "frames": 13, "width": 21, "kernel": 5},
    "odd2": {"batch": 3, "frames": 9, "width": 15, "kernel": 9},
}


class Model(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gated = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.scale, self.shift = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.rand(width) - 0.5)
        self.register_buffer("mean", 0.1 * torch.randn(width))
        self.register_buffer("variance", torch.rand(width) + 0.5)
        self.out = nn.Conv1d(width, width, 1)
        self.to(torch.float16)

    def forward(self, x):
        inner = nn.functional.glu(self.gated(self.norm(x).transpose(1, 2)), dim=1)
        inner = nn.functional.batch_norm(self.depthwise(inner), self.mean, self.variance, self.scale, self.shift)
        return x + self.out(nn.functional.silu(inner)).transpose(1, 2)


def get_inputs():
    return [torch.randn(batch, frames, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, kernel]
