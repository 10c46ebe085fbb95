"""A linear layer whose weights are places in a table of 16 values, the scales of their blocks themselves in eight bits.

Source: QLoRA (arXiv 2305.14314, appendix E and section 3): NormalFloat4, blocks of 64, scales in eight bits; the key
projection of Mistral 7B (arXiv 2310.06825), 4096 to 1024. 256 tokens in bf16.
"""

import torch
from torch import nn

tokens = 256
width = 4096
outer = 1024
block = 64

VARIANTS = {
    "small": {"tokens": 8, "width": 32, "outer": 64, "block": 8},
    "odd1": {"tokens": 3, "width": 30, "outer": 48, "block": 10},
    "odd2": {"tokens": 5, "width": 42, "outer": 16, "block": 14},
}
TABLE = (
    *(-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
)


class Model(nn.Module):
    def __init__(self, width, outer, block, table):
        super().__init__()
        self.block, self.shape = block, (outer, width)
        self.register_buffer("table", torch.tensor(table))
        self.register_buffer("packed", torch.randint(0, 256, (outer * width // 2,), dtype=torch.uint8))
        blocks = outer * width // block
        self.register_buffer("scales", torch.randint(-127, 128, (16, blocks // 16), dtype=torch.int8))
        self.register_buffer("outer_scales", (torch.rand(16, 1) + 0.5) * 1e-4)

    def forward(self, x):
        places = torch.stack((self.packed >> 4, self.packed & 15), dim=-1).flatten().int()
        scales = (self.scales.float() * self.outer_scales + 0.05).flatten()
        weight = (self.table[places].view(-1, self.block) * scales[:, None]).view(self.shape)
        return x @ weight.to(x.dtype).T


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, outer, block, TABLE]
