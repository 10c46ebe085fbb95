"""A linear layer whose weights are four bits each, two in a byte, with a scale and a zero for each group of 128.

Source: AWQ (arXiv 2306.00978), groups of 128, for Mistral 7B (arXiv 2310.06825): 4096 to 14336. 16 sequences in fp16.
"""

import torch
from torch import nn

sequences = 16
width = 4096
outer = 14336
group = 128

VARIANTS = {
    "small": {"sequences": 8, "width": 64, "outer": 48, "group": 16},
    "odd1": {"sequences": 3, "width": 30, "outer": 51, "group": 10},
    "odd2": {"sequences": 5, "width": 42, "outer": 29, "group": 14},
}


class Model(nn.Module):
    def __init__(self, width, outer, group):
        super().__init__()
        self.group = group
        self.register_buffer("packed", torch.randint(0, 256, (outer, width // 2), dtype=torch.uint8))
        self.register_buffer("scales", (torch.rand(outer, width // group) * 0.01 + 0.002).to(torch.float16))
        self.register_buffer("zeros", torch.randint(6, 10, (outer, width // group)).to(torch.float16))

    def forward(self, x):
        pairs = torch.stack((self.packed & 15, self.packed >> 4), dim=-1)
        weight = pairs.view(self.packed.shape[0], -1, self.group).to(x.dtype)
        weight = (weight - self.zeros[..., None]) * self.scales[..., None]
        return x @ weight.flatten(1).T


def get_inputs():
    return [torch.randn(sequences, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, outer, group]
