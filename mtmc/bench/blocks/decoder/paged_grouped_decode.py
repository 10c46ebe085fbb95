"""Decoding with heads that share keys over a cache in pages, each sequence of a length of its own.

Source: PagedAttention (arXiv 2309.06180), pages of 16 tokens, with the heads of Llama 3.1 8B (arXiv 2407.21783): 32 of
128 and 8 of keys. 32 sequences of up to 4096 tokens in bf16.
"""

import torch
from torch import nn

batch = 32
pages = 256
page = 16
heads = 32
kv_heads = 8
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "pages": 5, "page": 8, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"batch": 3, "pages": 4, "page": 7, "heads": 6, "kv_heads": 2, "head_dim": 9},
    "odd2": {"batch": 2, "pages": 9, "page": 5, "heads": 3, "kv_heads": 1, "head_dim": 11},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, key_pages, value_pages, table, lengths):
        keys = key_pages[table].flatten(1, 2).transpose(1, 2)
        values = value_pages[table].flatten(1, 2).transpose(1, 2)
        held = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
        return nn.functional.scaled_dot_product_attention(
            q[:, :, None], keys, values, attn_mask=held[:, None, None], enable_gqa=True
        )


def get_inputs():
    q = torch.randn(batch, heads, head_dim, dtype=torch.bfloat16)
    cache = [torch.randn(batch * pages, page, kv_heads, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    table = torch.randperm(batch * pages).view(batch, pages)
    return [q, *cache, table, torch.randint(1, pages * page + 1, (batch,))]


def get_init_inputs():
    return []
