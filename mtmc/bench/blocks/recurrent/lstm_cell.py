"""A step of an LSTM: two products into four gates, and the new cell and output.

Source: the large language model of Zaremba et al. (arXiv 1409.2329): 1500 units. 256 sequences in fp16.
"""

import torch
from torch import nn

batch = 256
width = 1500

VARIANTS = {
    "small": {"batch": 8, "width": 48},
    "odd1": {"batch": 3, "width": 21},
    "odd2": {"batch": 5, "width": 33},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.input, self.recurrent = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        self.to(torch.float16)

    def forward(self, x, h, c):
        i, f, g, o = (self.input(x) + self.recurrent(h)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def get_inputs():
    return [torch.randn(batch, width, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return [width]
