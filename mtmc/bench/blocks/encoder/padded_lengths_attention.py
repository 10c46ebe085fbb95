"""Attention of an encoder over texts of different lengths, each padded to the longest: no token sees the padding.

Source: BERT large (arXiv 1810.04805): 16 heads of 64, up to 512 tokens. 64 texts in fp16, as they come from one layer.
"""

import torch
from torch import nn

batch = 64
seq = 512
heads = 16
head_dim = 64

VARIANTS = {
    "small": {"batch": 3, "seq": 40, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 2, "seq": 27, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 4, "seq": 35, "heads": 1, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, projected, lengths):
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        padding = torch.arange(k.shape[2], device=k.device).expand(k.shape[0], -1) >= lengths.unsqueeze(1)
        scores = torch.matmul(q / q.shape[-1] ** 0.5, k.transpose(2, 3))
        weights = torch.softmax(scores + torch.where(padding, -torch.inf, 0.0).to(q.dtype)[:, None, None], dim=-1)
        return torch.matmul(weights, v).transpose(1, 2).flatten(2)


def get_inputs():
    projected = torch.randn(batch, seq, 3 * heads * head_dim, dtype=torch.float16)
    return [projected, torch.randint(1, seq + 1, (batch,))]


def get_init_inputs():
    return [heads]
