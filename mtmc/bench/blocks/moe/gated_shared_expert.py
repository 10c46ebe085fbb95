"""The expert that every token goes through, behind a sigmoid gate of one column, added to what the others gave.

Source: Qwen1.5-MoE-A2.7B (configuration of the release): width 2048, shared expert of hidden 5632. 4096 tokens in bf16.
"""

import torch
from torch import nn

tokens = 4096
width = 2048
hidden = 5632

VARIANTS = {
    "small": {"tokens": 24, "width": 64, "hidden": 96},
    "odd1": {"tokens": 7, "width": 33, "hidden": 51},
    "odd2": {"tokens": 13, "width": 29, "hidden": 45},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.open = nn.Linear(width, 1, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x, routed):
        gate, up = self.gate_up(x).tensor_split(2, dim=-1)
        return routed + torch.sigmoid(self.open(x)) * self.down(nn.functional.silu(gate) * up)


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [width, hidden]
