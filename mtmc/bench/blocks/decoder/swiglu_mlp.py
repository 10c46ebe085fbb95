"""A gated MLP with SiLU (SwiGLU).

Source: SwiGLU (arXiv 2002.05202) in Llama 3.2 1B (configuration of the release): width 2048, hidden 8192, no bias.
A prefill of 2048 tokens in bf16.
"""

import torch
from torch import nn

tokens = 2048
width = 2048
hidden = 8192

VARIANTS = {
    "small": {"tokens": 48, "width": 64, "hidden": 96},
    "odd1": {"tokens": 7, "width": 33, "hidden": 51},
    "odd2": {"tokens": 19, "width": 45, "hidden": 37},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, x):
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return self.down(LigerSiLUMulFunction.apply(self.gate(x), self.up(x)))


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
