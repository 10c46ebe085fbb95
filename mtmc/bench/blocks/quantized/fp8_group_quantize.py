"""Activations to fp8 with a scale for each 128 of a row, the largest of them at the end of the range.

Source: DeepSeek-V3 (arXiv 2412.19437, section 3.3.2): tiles of 1 x 128, width 7168. 4096 tokens in bf16.
"""

import torch
from torch import nn

tokens = 4096
groups = 56
group = 128

VARIANTS = {
    "small": {"tokens": 12, "groups": 4, "group": 32},
    "odd1": {"tokens": 5, "groups": 3, "group": 13},
    "odd2": {"tokens": 7, "groups": 5, "group": 21},
}


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x):
        tiles = x.float().unflatten(-1, (-1, self.group))
        scales = tiles.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
        return (tiles / scales).flatten(-2).to(torch.float8_e4m3fn), scales.squeeze(-1)


def get_inputs():
    return [torch.randn(tokens, groups * group, dtype=torch.bfloat16)]


def get_init_inputs():
    return [group]
