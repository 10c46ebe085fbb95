"""Retention over all tokens at once: products decayed by distance instead of a softmax, a norm of each head, and a
gate.

Source: RetNet 1.3B (arXiv 2307.08621): width 2048, 8 heads of 256 with values of 512, decays 1 - 2^(-5 - h). 1024
tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 1024
heads = 8
head_dim = 256

VARIANTS = {
    "small": {"batch": 2, "seq": 16, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "seq": 13, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "seq": 7, "heads": 5, "head_dim": 5},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.log_decay = nn.Buffer(torch.log(1 - 2 ** (-5.0 - torch.arange(heads).float())))
        self.out = nn.Linear(2 * heads * head_dim, heads * head_dim, bias=False)
        self.out.to(torch.bfloat16)

    def forward(self, q, k, v, gate):
        places = torch.arange(q.shape[2], device=q.device)
        behind = (places[:, None] - places[None, :]).float()
        decay = torch.where(behind >= 0, torch.exp(behind * self.log_decay[:, None, None]), 0.0)
        decay = decay / decay.sum(-1, keepdim=True).sqrt()
        kept = (q @ k.transpose(2, 3)).float() * decay
        kept = kept / kept.abs().sum(-1, keepdim=True).clamp(min=1.0)
        heads = kept.to(v.dtype) @ v
        normed = nn.functional.layer_norm(heads, (v.shape[3],), eps=1e-5)
        return self.out(nn.functional.silu(gate) * normed.transpose(1, 2).flatten(2))


def get_inputs():
    q, k = (head_dim**-0.25 * torch.randn(batch, heads, seq, head_dim, dtype=torch.bfloat16) for _ in range(2))
    v = torch.randn(batch, heads, seq, 2 * head_dim, dtype=torch.bfloat16)
    return [q, k, v, torch.randn(batch, seq, 2 * heads * head_dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads, head_dim]
