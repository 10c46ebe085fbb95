"""Several gradients scaled by one factor, so that their norm together is no more than a bound; the norm is told.

Source: gradient clipping (arXiv 1211.5063) at 1.0, as for GPT-3 (arXiv 2005.14165); the matrices of a layer of
GPT-2 small, width 768. Gradients in bf16.
"""

import torch
from torch import nn

width = 768

VARIANTS = {"small": {"width": 24}, "odd1": {"width": 13}, "odd2": {"width": 21}}


class Model(nn.Module):
    def __init__(self, bound):
        super().__init__()
        self.bound = bound

    def forward(self, qkv, out, up, down, norm):
        gradients = (qkv, out, up, down, norm)
        squares = torch.stack([each.float().square().sum() for each in gradients])
        size = squares.sum().sqrt()
        factor = torch.clamp(self.bound / (size + 1e-6), max=1.0)
        return [*(each * factor.to(each.dtype) for each in gradients), size]


def get_inputs():
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (2, width)]
    return [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]


def get_init_inputs():
    return [1.0]
