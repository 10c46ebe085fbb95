"""A causal depthwise convolution of four steps with SiLU, on rows that lie with channels last.

Source: the convolution of Mamba 2.8B (arXiv 2312.00752): inner width 5120, kernel 4. 2 x 2048 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 2048
width = 5120

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "width": 48},
    "odd1": {"batch": 1, "seq": 7, "width": 33},
    "odd2": {"batch": 3, "seq": 13, "width": 21},
}


class Model(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.convolve = nn.Conv1d(width, width, kernel, padding=kernel - 1, groups=width)
        self.to(torch.bfloat16)

    def forward(self, x):
        inner = self.convolve(x.transpose(1, 2))[..., : x.shape[1]]
        return nn.functional.silu(inner).transpose(1, 2)


def get_inputs():
    return [torch.randn(batch, seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, 4]
