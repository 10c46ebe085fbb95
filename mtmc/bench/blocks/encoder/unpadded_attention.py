"""Attention of an encoder over texts that lie one behind the other without padding, by where each of them ends.

Source: unpadding of ModernBERT base (arXiv 2412.13663): 12 heads of 64, 8192 tokens in one row. 32 texts in bf16.
"""

import torch
from torch import nn

texts = 32
tokens = 8192
heads = 12
head_dim = 64

VARIANTS = {
    "small": {"texts": 4, "tokens": 48, "heads": 2, "head_dim": 16},
    "odd1": {"texts": 3, "tokens": 37, "heads": 3, "head_dim": 9},
    "odd2": {"texts": 7, "tokens": 29, "heads": 1, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v, ends):
        text = (torch.arange(q.shape[1], device=q.device)[:, None] >= ends).sum(1)
        together = text[:, None] == text
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=together)


def get_inputs():
    rows = [torch.randn(heads, tokens, head_dim, dtype=torch.bfloat16) for _ in range(3)]
    return [*rows, torch.cat([torch.randint(0, tokens + 1, (texts - 1,)), torch.tensor([tokens])]).sort().values]


def get_init_inputs():
    return []
