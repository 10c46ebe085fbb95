"""RMSNorm of a residual stream, computed in float32 and rounded before the weight.

Source: Llama 3 8B (arXiv 2407.21783): width 4096, epsilon 1e-5. A prefill of 8192 tokens in bf16.
"""

import torch
from torch import nn

tokens = 8192
width = 4096

VARIANTS = {
    "small": {"tokens": 24, "width": 320},
    "odd1": {"tokens": 7, "width": 33},
    "odd2": {"tokens": 13, "width": 131},
}


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps
        self.to(torch.bfloat16)

    def forward(self, x):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return scaled.to(x.dtype) * self.weight


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, x):
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        return LigerRMSNormFunction.apply(x, self.weight, self.eps, 0.0, "llama", False)


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, 1e-5]
