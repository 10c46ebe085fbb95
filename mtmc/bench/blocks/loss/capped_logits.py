"""The logits of the last tokens by the transposed embedding, capped by a tanh.

Source: Gemma 2 2B (arXiv 2408.00118): width 2304, vocabulary 256128, cap 30; hidden states through RMSNorm with
weight 1 + w. 64 sequences in bf16.
"""

import torch
from torch import nn

sequences = 64
width = 2304
vocabulary = 256128

VARIANTS = {
    "small": {"sequences": 12, "width": 48, "vocabulary": 130},
    "odd1": {"sequences": 3, "width": 33, "vocabulary": 77},
    "odd2": {"sequences": 5, "width": 21, "vocabulary": 51},
}


class Model(nn.Module):
    def __init__(self, width, vocabulary, cap):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) - 0.5)
        self.embedding = nn.Parameter(torch.randn(vocabulary, width) * 0.3)
        self.cap = cap
        self.to(torch.bfloat16)

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        normed = (wide * (1.0 + self.weight.float())).to(x.dtype)
        return self.cap * torch.tanh((normed @ self.embedding.T) / self.cap)


def get_inputs():
    return [torch.randn(sequences, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, vocabulary, 30.0]
