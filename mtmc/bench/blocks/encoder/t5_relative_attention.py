"""Self-attention without a scale, with a learned bias for each bucket of distances.

Source: T5 base (arXiv 1910.10683): width 768, 12 heads of 64, 32 buckets up to a distance of 128. 8 x 512 tokens in
bf16.
"""

import math

import torch
from torch import nn

batch = 8
seq = 512
width = 768
heads = 12
head_dim = 64

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "width": 48, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "seq": 37, "width": 33, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "seq": 11, "width": 27, "heads": 5, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, width, heads, head_dim, buckets, farthest):
        super().__init__()
        self.heads, self.buckets, self.farthest = heads, buckets, farthest
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, width, bias=False)
        self.bias = nn.Embedding(buckets, heads)
        self.to(torch.bfloat16)

    def bucket(self, distance):
        half = self.buckets // 2
        exact = half // 2
        far = distance.abs()
        log = torch.log(far.clamp(min=1).float() / exact) / math.log(self.farthest / exact) * (half - exact)
        spread = (exact + log.to(torch.long)).clamp(max=half - 1)
        return (distance > 0).long() * half + torch.where(far < exact, far, spread)

    def forward(self, x):
        rows = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = (each.transpose(1, 2) for each in rows.unbind(2))
        places = torch.arange(x.shape[1], device=x.device)
        bias = self.bias(self.bucket(places[None, :] - places[:, None])).permute(2, 0, 1)
        weights = torch.softmax((q @ k.transpose(2, 3) + bias).float(), dim=-1).to(x.dtype)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def get_inputs():
    return [0.2 * torch.randn(batch, seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, heads, head_dim, 32, 128]
