"""A linear layer whose weights are fp8 with a scale for each block of 128 x 128.

Source: DeepSeek-V3 (arXiv 2412.19437, section 3.3.2): the latent query projection, 1536 to 24576. 32 sequences in bf16.
"""

import torch
from torch import nn

sequences = 32
columns = 12
rows = 192
block = 128

VARIANTS = {
    "small": {"sequences": 8, "columns": 3, "rows": 4, "block": 16},
    "odd1": {"sequences": 3, "columns": 5, "rows": 3, "block": 9},
    "odd2": {"sequences": 5, "columns": 2, "rows": 7, "block": 11},
}


class Model(nn.Module):
    def __init__(self, rows, columns, block):
        super().__init__()
        self.block = block
        weight = 100 * torch.randn(rows * block, columns * block)
        self.register_buffer("weight", weight.clamp(-448, 448).to(torch.float8_e4m3fn))
        self.register_buffer("scales", (torch.rand(rows, columns) + 0.5) * 0.01 * (columns * block) ** -0.5)

    def forward(self, x):
        scales = self.scales.repeat_interleave(self.block, dim=0).repeat_interleave(self.block, dim=1)
        return nn.functional.linear(x, (self.weight.float() * scales).to(x.dtype))


def get_inputs():
    return [torch.randn(sequences, columns * block, dtype=torch.bfloat16)]


def get_init_inputs():
    return [rows, columns, block]
