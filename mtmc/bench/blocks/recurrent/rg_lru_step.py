"""A step of a real-gated linear recurrence with gates of block-diagonal weights, the new input scaled by what is left.

Source: Griffin (arXiv 2402.19427, equations 1 to 4) as RecurrentGemma 2B: width 2560, 10 blocks, c = 8.
256 sequences; state in float32, weights in bf16.
"""

import torch
from torch import nn

batch = 256
blocks = 10
block = 256

VARIANTS = {
    "small": {"batch": 6, "blocks": 3, "block": 32},
    "odd1": {"batch": 3, "blocks": 5, "block": 13},
    "odd2": {"batch": 5, "blocks": 2, "block": 21},
}


class Model(nn.Module):
    def __init__(self, blocks, block):
        super().__init__()
        self.input, self.forget = (nn.Parameter(block**-0.5 * torch.randn(blocks, block, block)) for _ in range(2))
        self.input_bias, self.forget_bias = (nn.Parameter(torch.randn(blocks, block)) for _ in range(2))
        self.to(torch.bfloat16)
        self.rate = nn.Parameter(torch.rand(blocks * block))

    def gate(self, x, weight, bias):
        rows = torch.einsum("bnd,ndm->bnm", x.view(x.shape[0], *bias.shape), weight) + bias
        return torch.sigmoid(rows.float()).flatten(1)

    def forward(self, x, state):
        taken, forgotten = self.gate(x, self.input, self.input_bias), self.gate(x, self.forget, self.forget_bias)
        log_decay = -8.0 * forgotten * nn.functional.softplus(self.rate)
        left = torch.sqrt(-torch.expm1(2 * log_decay))
        state = torch.exp(log_decay) * state + left * taken * x
        return state.to(x.dtype), state


def get_inputs():
    return [torch.randn(batch, blocks * block, dtype=torch.bfloat16), torch.randn(batch, blocks * block)]


def get_init_inputs():
    return [blocks, block]
