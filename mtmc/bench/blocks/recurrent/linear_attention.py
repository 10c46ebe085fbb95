"""Linear attention in both directions: features by elu + 1, keys times values first, and a division by their sum.

Source: Transformers are RNNs (arXiv 2006.16236, equation 5) with 8 heads of 64. 4 x 8192 tokens in bf16.
"""

import torch
from torch import nn

batch = 4
seq = 8192
heads = 8
head_dim = 64

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "seq": 13, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "seq": 7, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        memory = torch.einsum("nshd,nshm->nhmd", k, v)
        shares = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(1)) + 1e-6)
        return torch.einsum("nlhd,nhmd,nlh->nlhm", q, memory, shares)


def get_inputs():
    return [torch.randn(batch, seq, heads, head_dim, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
