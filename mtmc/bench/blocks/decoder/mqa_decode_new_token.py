"""Multi-query attention of one token: the new key and value are put behind the cache, and one pair serves all heads.

Source: Falcon 7B (arXiv 2311.16867): 71 query heads and 1 key head of 64. 64 sequences, 2047 cached tokens, fp16.
"""

import torch
from torch import nn

batch = 64
cached = 2047
heads = 71
head_dim = 64

VARIANTS = {
    "small": {"batch": 3, "cached": 31, "heads": 6, "head_dim": 16},
    "odd1": {"batch": 2, "cached": 18, "heads": 5, "head_dim": 9},
    "odd2": {"batch": 5, "cached": 12, "heads": 7, "head_dim": 11},
}


class Model(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, new_key, new_value, keys, values):
        keys = torch.cat((keys, new_key), dim=1)
        values = torch.cat((values, new_value), dim=1)
        weights = torch.softmax(torch.bmm(q, keys.transpose(1, 2)) * self.scale, dim=-1)
        return torch.bmm(weights, values), keys, values


def get_inputs():
    q = torch.randn(batch, heads, head_dim, dtype=torch.float16)
    new = [torch.randn(batch, 1, head_dim, dtype=torch.float16) for _ in range(2)]
    old = [torch.randn(batch, cached, head_dim, dtype=torch.float16) for _ in range(2)]
    return [q, *new, *old]


def get_init_inputs():
    return [head_dim]
