"""Attention of one token over keys and values in int8, with a scale for each token and head.

Source: a cache quantized by tokens (KIVI's baseline, arXiv 2402.02750, section 3) for Llama 2 13B (arXiv
2307.09288): 40 heads of 128. 8 sequences, 2048 cached tokens; queries in fp16.
"""

import torch
from torch import nn

batch = 8
cached = 2048
heads = 40
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "cached": 24, "heads": 3, "head_dim": 16},
    "odd1": {"batch": 1, "cached": 19, "heads": 5, "head_dim": 9},
    "odd2": {"batch": 3, "cached": 13, "heads": 2, "head_dim": 11},
}


class Model(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, keys, key_scales, values, value_scales):
        scores = (q[:, :, None] @ keys.to(q.dtype).transpose(2, 3)).squeeze(2).float()
        weights = torch.softmax(scores * key_scales * self.scale, dim=-1) * value_scales
        return (weights[:, :, None].to(q.dtype) @ values.to(q.dtype)).squeeze(2)


def get_inputs():
    q = torch.randn(batch, heads, head_dim, dtype=torch.float16)
    shape = (batch, heads, cached, head_dim)
    keys, values = (torch.randint(-127, 128, shape, dtype=torch.int8) for _ in range(2))
    scales = [(torch.rand(batch, heads, cached) + 0.5) / 64 for _ in range(2)]
    return [q, keys, scales[0], values, scales[1]]


def get_init_inputs():
    return [head_dim]
