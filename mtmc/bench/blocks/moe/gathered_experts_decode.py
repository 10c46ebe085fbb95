"""Experts of a few tokens, each token's weights fetched by the numbers of the experts that it chose.

Source: gpt-oss-20b (arXiv 2508.10925), as its release in torch writes it out: width 2880, 32 experts of hidden 2880 with
a clamped SwiGLU of gates and values that alternate, 4 a token. 4 tokens in bf16.
"""

import torch
from torch import nn

tokens = 4
chosen = 4
width = 2880
experts = 32
hidden = 2880

VARIANTS = {
    "small": {"tokens": 3, "chosen": 2, "width": 32, "experts": 8, "hidden": 24},
    "odd1": {"tokens": 2, "chosen": 3, "width": 21, "experts": 5, "hidden": 19},
    "odd2": {"tokens": 5, "chosen": 1, "width": 13, "experts": 9, "hidden": 11},
}


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.first = nn.Parameter(torch.randn(experts, 2 * hidden, width) * width**-0.5)
        self.first_bias = nn.Parameter(torch.randn(experts, 2 * hidden))
        self.second = nn.Parameter(torch.randn(experts, width, hidden) * hidden**-0.5)
        self.second_bias = nn.Parameter(torch.randn(experts, width))
        self.to(torch.bfloat16)

    def forward(self, x, routes, weights):
        both = torch.einsum("beck,bk->bec", self.first[routes], x) + self.first_bias[routes]
        gate, value = both[..., ::2].clamp(max=7.0), both[..., 1::2].clamp(-7.0, 7.0)
        inner = gate * torch.sigmoid(1.702 * gate) * (value + 1)
        found = torch.einsum("beck,bek->bec", self.second[routes], inner) + self.second_bias[routes]
        return torch.einsum("bec,be->bc", found, weights)


def get_inputs():
    routes = torch.rand(tokens, experts).topk(chosen, dim=-1).indices
    weights = torch.softmax(torch.randn(tokens, chosen), dim=-1)
    return [torch.randn(tokens, width, dtype=torch.bfloat16), routes, weights.to(torch.bfloat16)]


def get_init_inputs():
    return [experts, width, hidden]
