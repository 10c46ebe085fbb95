"""LayerNorm with a weight around one, and an MLP with a squared ReLU, beside the residual.

Source: Nemotron-4 15B (arXiv 2402.16819): width 6144, hidden 24576, LayerNorm1p; squared ReLU from Primer
(arXiv 2109.08668). A prefill of 512 tokens in bf16.
"""

import torch
from torch import nn

tokens = 512
width = 6144
hidden = 24576

VARIANTS = {
    "small": {"tokens": 24, "width": 64, "hidden": 160},
    "odd1": {"tokens": 5, "width": 33, "hidden": 77},
    "odd2": {"tokens": 11, "width": 51, "hidden": 65},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) - 0.5)
        self.bias = nn.Parameter(torch.rand(width) - 0.5)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.width = width
        self.to(torch.bfloat16)

    def forward(self, x):
        normed = nn.functional.layer_norm(x, (self.width,), 1 + self.weight, self.bias)
        return x + self.down(torch.relu(self.up(normed)).square())


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
