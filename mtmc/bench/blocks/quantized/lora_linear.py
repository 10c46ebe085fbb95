"""A frozen linear layer with a low-rank correction beside it.

Source: LoRA (arXiv 2106.09685), rank 16 and alpha 32, on the 4096 x 4096 query projection of Llama 2 7B (arXiv
2307.09288). 2048 tokens in bf16.
"""

import torch
from torch import nn

tokens = 2048
width = 4096
outer = 4096
rank = 16

VARIANTS = {
    "small": {"tokens": 40, "width": 64, "outer": 96, "rank": 8},
    "odd1": {"tokens": 7, "width": 33, "outer": 51, "rank": 3},
    "odd2": {"tokens": 19, "width": 47, "outer": 29, "rank": 5},
}


class Model(nn.Module):
    def __init__(self, width, outer, rank, alpha):
        super().__init__()
        self.base = nn.Linear(width, outer, bias=False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, outer, bias=False)
        self.scale = alpha / rank
        self.to(torch.bfloat16)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.scale


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, outer, rank, 32]
