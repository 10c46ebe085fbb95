"""A step of a gated recurrent unit, whose reset gate stands behind the recurrent product of the candidate.

Source: GRU (arXiv 1406.1078, reset as in cuDNN) with the 1024 units of the RSSM of DreamerV3 (arXiv 2301.04104),
LayerNorm over the input's three gates. 1024 sequences in fp16.
"""

import torch
from torch import nn

batch = 1024
width = 1024

VARIANTS = {
    "small": {"batch": 8, "width": 48},
    "odd1": {"batch": 3, "width": 21},
    "odd2": {"batch": 5, "width": 33},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.input = nn.Linear(width, 3 * width, bias=False)
        self.norm = nn.LayerNorm(3 * width)
        self.recurrent = nn.Linear(width, 3 * width)
        self.to(torch.float16)

    def forward(self, x, h):
        xr, xz, xn = self.norm(self.input(x)).chunk(3, dim=1)
        hr, hz, hn = self.recurrent(h).chunk(3, dim=1)
        update = torch.sigmoid(xz + hz)
        new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return new + update * (h - new)


def get_inputs():
    return [torch.randn(batch, width, dtype=torch.float16) for _ in range(2)]


def get_init_inputs():
    return [width]
