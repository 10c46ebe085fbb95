"""Where each pair of token and expert goes once pairs are sorted by expert, and how many each expert gets.

Source: the permutation of MegaBlocks (arXiv 2211.15841) with the experts of OLMoE (arXiv 2409.02060): 64 experts, 8
a token. 4096 tokens; hidden states of width 1024 in fp16 are put in that order.
"""

import torch
from torch import nn

tokens = 4096
chosen = 8
experts = 64
width = 1024

VARIANTS = {
    "small": {"tokens": 16, "chosen": 2, "experts": 8, "width": 64},
    "odd1": {"tokens": 7, "chosen": 3, "experts": 5, "width": 33},
    "odd2": {"tokens": 13, "chosen": 1, "experts": 9, "width": 21},
}


class Model(nn.Module):
    def __init__(self, experts, chosen):
        super().__init__()
        self.experts, self.chosen = experts, chosen

    def forward(self, x, routes):
        flat = routes.flatten()
        counts = (flat[:, None] == torch.arange(self.experts, device=x.device)).sum(0)
        order = torch.argsort(flat, stable=True)
        return x[order // self.chosen], order, counts.cumsum(0)


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.float16), torch.randint(0, experts, (tokens, chosen))]


def get_init_inputs():
    return [experts, chosen]
