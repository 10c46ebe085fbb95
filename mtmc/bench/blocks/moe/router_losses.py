"""The losses of a router: experts' shares times their mean probabilities, and the square of the logits' logsumexp.

Source: Switch Transformers (arXiv 2101.03961, equations 4 to 6), 128 experts, weight 0.01; the z-loss of ST-MoE
(arXiv 2202.08906), weight 0.001. 16384 tokens, logits in bf16.
"""

import torch
from torch import nn

tokens = 16384
experts = 128

VARIANTS = {
    "small": {"tokens": 96, "experts": 16},
    "odd1": {"tokens": 33, "experts": 7},
    "odd2": {"tokens": 51, "experts": 13},
}


class Model(nn.Module):
    def __init__(self, balance, z):
        super().__init__()
        self.balance, self.z = balance, z

    def forward(self, logits):
        logits = logits.float()
        probabilities = torch.softmax(logits, dim=-1)
        best = nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        shares = (best.mean(0) * probabilities.mean(0)).sum() * logits.shape[-1]
        return self.balance * shares + self.z * torch.logsumexp(logits, dim=-1).square().mean()


def get_inputs():
    return [torch.randn(tokens, experts, dtype=torch.bfloat16)]


def get_init_inputs():
    return [0.01, 0.001]
