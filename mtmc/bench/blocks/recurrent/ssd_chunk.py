"""What a chunk of a state-space dual gives by itself, and the state that it leaves: decays by sums of logarithms.

Source: Mamba-2 1.3B (arXiv 2405.21060, section 6): 64 heads of 64, state of 128, chunks of 256, one group. 8 chunks
in bf16.
"""

import torch
from torch import nn

chunks = 8
chunk = 256
heads = 64
head_dim = 64
state = 128

VARIANTS = {
    "small": {"chunks": 2, "chunk": 16, "heads": 2, "head_dim": 16, "state": 16},
    "odd1": {"chunks": 1, "chunk": 13, "heads": 3, "head_dim": 9, "state": 7},
    "odd2": {"chunks": 3, "chunk": 7, "heads": 2, "head_dim": 5, "state": 11},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, decay, b, c):
        total = decay.cumsum(1)
        gaps = (total[:, :, None] - total[:, None, :]).permute(0, 3, 1, 2)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        kept = torch.exp(gaps.masked_fill(later, float("-inf")))
        scores = (torch.bmm(c, b.transpose(1, 2))[:, None] * kept).to(x.dtype)
        y = torch.einsum("nhqk,nkhd->nqhd", scores, x)
        left = torch.exp(total[:, -1:] - total).to(x.dtype)
        return y, torch.einsum("nks,nkhd->nhds", b, x * left[..., None])


def get_inputs():
    x = torch.randn(chunks, chunk, heads, head_dim, dtype=torch.bfloat16)
    b, c = (torch.randn(chunks, chunk, state, dtype=torch.bfloat16) for _ in range(2))
    return [x, -0.1 * torch.rand(chunks, chunk, heads), b, c]


def get_init_inputs():
    return []
