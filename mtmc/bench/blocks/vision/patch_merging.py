"""Four neighbours side by side, LayerNorm, and a projection to twice the width: a map of half the size.

Source: Swin-T (arXiv 2103.14030), after stage 1: 56 x 56 places of width 96. A batch of 32 in fp16.
"""

import torch
from torch import nn

batch = 32
half = 28
width = 96

VARIANTS = {
    "small": {"batch": 2, "half": 4, "width": 32},
    "odd1": {"batch": 1, "half": 3, "width": 21},
    "odd2": {"batch": 3, "half": 5, "width": 13},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)
        self.to(torch.float16)

    def forward(self, x):
        corners = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.reduce(self.norm(torch.cat(corners, dim=-1)))


def get_inputs():
    return [torch.randn(batch, 2 * half, 2 * half, width, dtype=torch.float16)]


def get_init_inputs():
    return [width]
