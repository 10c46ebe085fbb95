"""Attention over documents packed into one row: a token sees those before it in its own document.

Source: packing as in Llama 3 (arXiv 2407.21783, section 3.2), with the heads of SmolLM2 1.7B (arXiv 2502.02737): 32
of 64. 2 x 2048 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 2048
heads = 32
head_dim = 64
document = 300

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "heads": 3, "head_dim": 16, "document": 7},
    "odd1": {"batch": 1, "seq": 19, "heads": 2, "head_dim": 9, "document": 5},
    "odd2": {"batch": 3, "seq": 13, "heads": 3, "head_dim": 7, "document": 9},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v, documents):
        same = documents[:, :, None] == documents[:, None, :]
        before = torch.ones_like(same[0]).tril()
        bias = torch.zeros(same.shape, dtype=q.dtype, device=q.device).masked_fill(~(same & before), float("-inf"))
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None])


def get_inputs():
    starts = (torch.rand(batch, seq) < 1 / document).long()
    rows = [torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16) for _ in range(3)]
    return [*rows, starts.cumsum(1)]


def get_init_inputs():
    return []
