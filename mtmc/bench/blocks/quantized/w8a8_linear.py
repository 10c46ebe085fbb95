"""A linear layer of int8 activations and weights: integer products, then both scales, a bias, and ReLU.

Source: SmoothQuant (arXiv 2211.10438) for the MLP of OPT-6.7B (arXiv 2205.01068): 4096 to 16384. 1024 tokens,
results in fp16.
"""

import torch
from torch import nn

tokens = 1024
width = 4096
outer = 16384

VARIANTS = {
    "small": {"tokens": 32, "width": 64, "outer": 96},
    "odd1": {"tokens": 19, "width": 40, "outer": 56},
    "odd2": {"tokens": 33, "width": 24, "outer": 88},
}


class Model(nn.Module):
    def __init__(self, width, outer):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outer, width), dtype=torch.int8))
        self.register_buffer("scale", (torch.rand(outer) + 0.5) * 0.01 / 127)
        self.register_buffer("bias", torch.randn(outer))

    def forward(self, x, scales):
        total = torch._int_mm(x, self.weight.T)
        return torch.relu(total.float() * scales * self.scale + self.bias).to(torch.float16)


def get_inputs():
    return [torch.randint(-127, 128, (tokens, width), dtype=torch.int8), (torch.rand(tokens, 1) + 0.5) / 127]


def get_init_inputs():
    return [width, outer]
