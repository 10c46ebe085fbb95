"""A router: the largest logits of each token and the softmax over those alone.

Source: Mixtral 8x7B (arXiv 2401.04088, section 2.1): 8 experts, 2 a token, logits in float32. 65536 tokens; weights
in bf16.
"""

import torch
from torch import nn

tokens = 65536
experts = 8
chosen = 2

VARIANTS = {
    "small": {"tokens": 64, "experts": 16, "chosen": 4},
    "odd1": {"tokens": 7, "experts": 5, "chosen": 3},
    "odd2": {"tokens": 33, "experts": 9, "chosen": 1},
}


class Model(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen

    def forward(self, logits):
        largest, experts = torch.topk(logits, self.chosen, dim=-1)
        return torch.softmax(largest, dim=-1).to(torch.bfloat16), experts


def get_inputs():
    return [torch.randn(tokens, experts)]


def get_init_inputs():
    return [chosen]
