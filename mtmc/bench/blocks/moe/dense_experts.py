"""All experts computed for every token, and their outputs added by the router's weights: decoding with few tokens.

Source: OLMoE 1B-7B (arXiv 2409.02060): width 2048, 64 experts of hidden 1024 with SwiGLU. 64 tokens in bf16.
"""

import torch
from torch import nn

tokens = 64
width = 2048
experts = 64
hidden = 1024

VARIANTS = {
    "small": {"tokens": 12, "width": 32, "experts": 4, "hidden": 48},
    "odd1": {"tokens": 5, "width": 21, "experts": 3, "hidden": 19},
    "odd2": {"tokens": 7, "width": 13, "experts": 5, "hidden": 27},
}


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)
        self.to(torch.bfloat16)

    def forward(self, x, weights):
        inner = nn.functional.silu(torch.matmul(x, self.gate)) * torch.matmul(x, self.up)
        return (torch.bmm(inner, self.down) * weights.t()[..., None]).sum(0)


def get_inputs():
    weights = torch.softmax(2 * torch.randn(tokens, experts), dim=-1)
    return [torch.randn(tokens, width, dtype=torch.bfloat16), weights.to(torch.bfloat16)]


def get_init_inputs():
    return [experts, width, hidden]
