"""Attention of one token over a cache in pages, which a table of blocks puts in order.

Source: PagedAttention (arXiv 2309.06180), pages of 16 tokens, with the heads of Llama 2 7B (arXiv 2307.09288): 32
of 128. 16 sequences of 64 pages in fp16.
"""

import torch
from torch import nn

batch = 16
pages = 64
page = 16
heads = 32
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "pages": 3, "page": 8, "heads": 3, "head_dim": 16},
    "odd1": {"batch": 3, "pages": 2, "page": 7, "heads": 2, "head_dim": 9},
    "odd2": {"batch": 1, "pages": 5, "page": 5, "heads": 3, "head_dim": 11},
}


class Model(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, key_pages, value_pages, table):
        keys, values = key_pages[table].flatten(1, 2), value_pages[table].flatten(1, 2)
        scores = (q[:, None] * keys).sum(-1) * self.scale
        weights = torch.softmax(scores.float(), dim=1).to(q.dtype)
        return (weights[..., None] * values).sum(1)


def get_inputs():
    q = torch.randn(batch, heads, head_dim, dtype=torch.float16)
    cache = [torch.randn(batch * pages, page, heads, head_dim, dtype=torch.float16) for _ in range(2)]
    return [q, *cache, torch.randperm(batch * pages).view(batch, pages)]


def get_init_inputs():
    return [head_dim]
