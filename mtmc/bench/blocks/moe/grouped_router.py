"""A router limited to some groups of experts: sigmoid scores with a bias for balance, groups by their two best.

Source: DeepSeek-V3 (arXiv 2412.19437, section 2.1.2): 256 experts in 8 groups, 4 groups and 8 experts a token,
factor 2.5. 256 sequences of one token, scores in float32; weights in bf16.
"""

import torch
from torch import nn

tokens = 256
groups = 8
group = 32
open_groups = 4
chosen = 8

VARIANTS = {
    "small": {"tokens": 24, "groups": 4, "group": 8, "open_groups": 2, "chosen": 4},
    "odd1": {"tokens": 7, "groups": 3, "group": 5, "open_groups": 2, "chosen": 3},
    "odd2": {"tokens": 11, "groups": 5, "group": 7, "open_groups": 3, "chosen": 5},
}


class Model(nn.Module):
    def __init__(self, groups, group, open_groups, chosen, factor):
        super().__init__()
        self.groups, self.open_groups, self.chosen, self.factor = groups, open_groups, chosen, factor
        self.bias = nn.Parameter(0.1 * torch.randn(groups * group))

    def forward(self, logits):
        scores = torch.sigmoid(logits)
        biased = (scores + self.bias).unflatten(1, (self.groups, -1))
        best = biased.topk(2, dim=-1).values.sum(-1).topk(self.open_groups, dim=-1).indices
        opened = torch.zeros_like(biased[..., 0]).scatter(1, best, 1.0) > 0
        biased = biased.masked_fill(~opened[..., None], float("-inf")).flatten(1)
        experts = biased.topk(self.chosen, dim=-1).indices
        weights = scores.gather(1, experts)
        return (weights / weights.sum(-1, keepdim=True) * self.factor).to(torch.bfloat16), experts


def get_inputs():
    return [torch.randn(tokens, groups * group)]


def get_init_inputs():
    return [groups, group, open_groups, chosen, 2.5]
