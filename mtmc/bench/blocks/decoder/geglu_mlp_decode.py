"""A gated MLP with tanh-GELU (GeGLU), gate and up in one matrix, at one token a sequence: bound by its weights.

Source: Gemma 2B (arXiv 2403.08295): width 2048, hidden 16384 for each half. 32 sequences in bf16.
"""

import torch
from torch import nn

sequences = 32
width = 2048
hidden = 16384

VARIANTS = {
    "small": {"sequences": 8, "width": 64, "hidden": 96},
    "odd1": {"sequences": 3, "width": 33, "hidden": 29},
    "odd2": {"sequences": 5, "width": 47, "hidden": 51},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(nn.functional.gelu(gate, approximate="tanh") * up)


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, x):
        from liger_kernel.ops.geglu import LigerGELUMulFunction

        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(LigerGELUMulFunction.apply(gate, up))


def get_inputs():
    return [torch.randn(sequences, 1, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
