"""The experts of a mixture over tokens that are sorted by expert: each expert has as many as chose it, or none.

Source: OLMoE 1B-7B (arXiv 2409.02060): width 2048, 64 experts of hidden 1024 with SwiGLU, 8 a token, whose tokens lie in
groups as in MegaBlocks (arXiv 2211.15841). 2048 tokens in bf16.
"""

import torch
from torch import nn

tokens = 2048
chosen = 8
width = 2048
experts = 64
hidden = 1024

VARIANTS = {
    "small": {"tokens": 20, "chosen": 2, "width": 32, "experts": 8, "hidden": 48},
    "odd1": {"tokens": 7, "chosen": 3, "width": 24, "experts": 5, "hidden": 40},
    "odd2": {"tokens": 3, "chosen": 1, "width": 8, "experts": 9, "hidden": 16},
}


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(experts, hidden, width) * width**-0.5)
        self.up = nn.Parameter(torch.randn(experts, hidden, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, hidden) * hidden**-0.5)
        self.to(torch.bfloat16)

    def forward(self, x, ends):
        gate, up = (nn.functional.grouped_mm(x, each.mT, offs=ends) for each in (self.gate, self.up))
        return nn.functional.grouped_mm(nn.functional.silu(gate) * up, self.down.mT, offs=ends)


def get_inputs():
    routes = torch.randint(0, experts, (tokens * chosen,))
    ends = (routes[:, None] == torch.arange(experts)).sum(0).cumsum(0)
    return [torch.randn(tokens * chosen, width, dtype=torch.bfloat16), ends.to(torch.int32)]


def get_init_inputs():
    return [experts, width, hidden]
