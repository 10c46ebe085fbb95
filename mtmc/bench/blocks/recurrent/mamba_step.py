"""One step of a selective state space in decoding: discretization, the state's update, its reading, skip and gate.

Source: Mamba 2.8B (arXiv 2312.00752): inner width 5120, state of 16. 64 sequences; inputs in bf16, state in float32.
"""

import torch
from torch import nn

batch = 64
width = 5120
state = 16

VARIANTS = {
    "small": {"batch": 3, "width": 48, "state": 16},
    "odd1": {"batch": 2, "width": 33, "state": 7},
    "odd2": {"batch": 5, "width": 21, "state": 11},
}


class Model(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.log_decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.rand(width) - 4.0)

    def forward(self, x, step, b, c, gate, state):
        step = nn.functional.softplus(step.float() + self.bias)
        decay = torch.exp(step[:, :, None] * -torch.exp(self.log_decay))
        state = state * decay + (step * x)[:, :, None] * b.float()[:, None]
        y = torch.einsum("bds,bs->bd", state, c.float()) + self.skip * x
        return (y * nn.functional.silu(gate.float())).to(x.dtype), state


def get_inputs():
    x, step, gate = (torch.randn(batch, width, dtype=torch.bfloat16) for _ in range(3))
    b, c = (torch.randn(batch, state, dtype=torch.bfloat16) for _ in range(2))
    return [x, step, b, c, gate, torch.randn(batch, width, state)]


def get_init_inputs():
    return [width, state]
