"""A selective state space over a short chunk, one step after another: the recurrence itself.

Source: Mamba 130M (arXiv 2312.00752): inner width 1536, state of 16. 8 sequences, a chunk of 16 tokens in bf16.
"""

import torch
from torch import nn

batch = 8
chunk = 16
width = 1536
state = 16

VARIANTS = {
    "small": {"batch": 2, "width": 24, "state": 4},
    "odd1": {"batch": 1, "width": 13, "state": 3},
    "odd2": {"batch": 3, "width": 21, "state": 5},
}


class Model(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.decay = nn.Parameter(-torch.arange(1, state + 1).float().repeat(width, 1))

    def forward(self, x, step, b, c):
        step = nn.functional.softplus(step.float())
        state = torch.zeros(x.shape[0], *self.decay.shape, device=x.device)
        rows = []
        for place in range(x.shape[1]):
            size = step[:, place, :, None]
            state = torch.exp(size * self.decay) * state + size * b[:, place, None] * x[:, place, :, None]
            rows.append((state * c[:, place, None]).sum(-1))
        return torch.stack(rows, dim=1).to(x.dtype)


def get_inputs():
    x, step = (torch.randn(batch, chunk, width, dtype=torch.bfloat16) for _ in range(2))
    return [x, step, *(torch.randn(batch, chunk, state, dtype=torch.bfloat16) for _ in range(2))]


def get_init_inputs():
    return [width, state]
