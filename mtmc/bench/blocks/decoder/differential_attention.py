"""Differential attention: two softmaxes, the second taken from the first at a learned rate, and a norm of each head.

Source: Differential Transformer (arXiv 2410.05258), 3B: 12 heads of 2 x 128, initial lambda 0.8 - 0.6 exp(-0.3 (l -
1)) at layer 7. 1024 tokens in bf16.
"""

import math

import torch
from torch import nn

batch = 2
seq = 1024
heads = 12
head_dim = 128

VARIANTS = {
    "small": {"batch": 1, "seq": 24, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 2, "seq": 11, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 1, "seq": 17, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, head_dim, layer):
        super().__init__()
        self.initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.q1, self.k1, self.q2, self.k2 = (nn.Parameter(0.1 * torch.randn(head_dim)) for _ in range(4))
        self.weight = nn.Parameter(torch.rand(2 * head_dim) + 0.5)
        self.scale = head_dim**-0.5
        self.to(torch.bfloat16)

    def forward(self, q, k, v):
        rate = torch.exp((self.q1 * self.k1).sum().float()) - torch.exp((self.q2 * self.k2).sum().float())
        later = torch.ones(q.shape[3], q.shape[3], dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(-2, -1) * self.scale).masked_fill(later, float("-inf"))
        weights = torch.softmax(scores.float(), dim=-1)
        weights = weights[:, 0] - (rate + self.initial) * weights[:, 1]
        heads = weights.to(v.dtype) @ v
        norm = nn.functional.rms_norm(heads, (v.shape[-1],), self.weight, 1e-5)
        return (norm * (1 - self.initial)).transpose(1, 2).flatten(2)


def get_inputs():
    q, k = (torch.randn(batch, 2, heads, seq, head_dim, dtype=torch.bfloat16) for _ in range(2))
    return [q, k, torch.randn(batch, heads, seq, 2 * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [head_dim, 6]
