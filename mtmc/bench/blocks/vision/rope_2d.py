"""Rotary embedding in two dimensions: half of each head turns with the row, half with the column; the class token
stays.

Source: axial rotary embedding of EVA-02 L/14 (arXiv 2303.11331): 16 heads of 64, 16 x 16 patches. A batch of 32 in
fp16.
"""

import torch
from torch import nn

batch = 32
heads = 16
height = 16
width = 16
quarter = 16

VARIANTS = {
    "small": {"batch": 2, "heads": 2, "height": 3, "width": 4, "quarter": 4},
    "odd1": {"batch": 1, "heads": 3, "height": 5, "width": 3, "quarter": 3},
    "odd2": {"batch": 3, "heads": 1, "height": 3, "width": 7, "quarter": 5},
}


class Model(nn.Module):
    def __init__(self, height, width, quarter):
        super().__init__()
        rates = 10000 ** (-torch.arange(quarter).float() / quarter)
        down = (torch.arange(height)[:, None] * rates)[:, None].expand(height, width, quarter)
        right = (torch.arange(width)[:, None] * rates)[None].expand(height, width, quarter)
        angles = torch.cat((down, right), dim=-1).flatten(0, 1).repeat_interleave(2, dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x):
        first, rest = x[:, :, :1], x[:, :, 1:]
        even, odd = rest[..., 0::2], rest[..., 1::2]
        swapped = torch.stack((-odd, even), dim=-1).flatten(-2)
        return torch.cat((first, (rest * self.cos + swapped * self.sin).type_as(x)), dim=2)

    def forward(self, q, k):
        return self.turned(q), self.turned(k)


def get_inputs():
    return [torch.randn(batch, heads, height * width + 1, 4 * quarter, dtype=torch.float16) for _ in range(2)]


def get_init_inputs():
    return [height, width, quarter]
