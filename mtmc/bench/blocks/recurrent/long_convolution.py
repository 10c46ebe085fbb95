"""A convolution as long as the sequence, through the frequencies, between two gates.

Source: order 2 of Hyena (arXiv 2302.10866) at 4096 tokens of width 768; gates in bf16, the transform in float32. A
batch of 2.
"""

import torch
from torch import nn

batch = 2
width = 768
seq = 4096

VARIANTS = {
    "small": {"batch": 2, "width": 16, "seq": 24},
    "odd1": {"batch": 1, "width": 13, "seq": 15},
    "odd2": {"batch": 3, "width": 7, "seq": 21},
}


class Model(nn.Module):
    def __init__(self, width, seq):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(width, seq) * torch.exp(-torch.arange(seq) * 8.0 / seq))
        self.skip = nn.Parameter(torch.randn(width, 1))

    def forward(self, x, first, second):
        seq = x.shape[2]
        inner = (x * first).float()
        spectrum = torch.fft.rfft(inner, n=2 * seq) * torch.fft.rfft(self.filter, n=2 * seq)
        y = torch.fft.irfft(spectrum, n=2 * seq)[..., :seq]
        return (y + self.skip * inner).to(x.dtype) * second


def get_inputs():
    return [torch.randn(batch, width, seq, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [width, seq]
