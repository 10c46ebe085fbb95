"""A chunk of a prompt over the pages that hold what came before it: a token sees all before its own place.

Source: chunked prefill of Sarathi-Serve (arXiv 2403.02310) over pages of 16 tokens (arXiv 2309.06180), with the heads of
Mistral 7B (arXiv 2310.06825): 32 of 128 and 8 of keys. Chunks of 512 tokens of 4 prompts of up to 8192 in bf16.
"""

import torch
from torch import nn

batch = 4
chunk = 512
pages = 512
page = 16
heads = 32
kv_heads = 8
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "chunk": 20, "pages": 6, "page": 8, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "chunk": 17, "pages": 9, "page": 5, "heads": 6, "kv_heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "chunk": 5, "pages": 3, "page": 11, "heads": 2, "kv_heads": 1, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, groups, head_dim):
        super().__init__()
        self.groups, self.scale = groups, head_dim**-0.5

    def forward(self, q, key_pages, value_pages, table, starts):
        keys, values = (pages[table].flatten(1, 2).transpose(1, 2) for pages in (key_pages, value_pages))
        keys, values = (each.repeat_interleave(self.groups, dim=1) for each in (keys, values))
        scores = (q @ keys.transpose(-2, -1)).float() * self.scale
        place = starts[:, None] + torch.arange(q.shape[2], device=q.device)
        hidden = torch.arange(keys.shape[2], device=q.device) > place[..., None]
        weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(dim=-1)
        return weights.to(q.dtype) @ values


def get_inputs():
    q = torch.randn(batch, heads, chunk, head_dim, dtype=torch.bfloat16)
    cache = [torch.randn(batch * pages, page, kv_heads, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    table = torch.randperm(batch * pages).view(batch, pages)
    return [q, *cache, table, torch.randint(0, pages * page - chunk + 1, (batch,))]


def get_init_inputs():
    return [heads // kv_heads, head_dim]
