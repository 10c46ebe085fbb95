"""A linear layer whose weights are int8 with a scale for each row, at one token a sequence.

Source: weight-only quantization by rows (absmax, arXiv 2208.07339, section 2) of the MLP of Llama 2 7B (arXiv
2307.09288): 4096 to 11008. 16 sequences in fp16.
"""

import torch
from torch import nn

sequences = 16
width = 4096
outer = 11008

VARIANTS = {
    "small": {"sequences": 8, "width": 64, "outer": 96},
    "odd1": {"sequences": 3, "width": 33, "outer": 51},
    "odd2": {"sequences": 5, "width": 47, "outer": 29},
}


class Model(nn.Module):
    def __init__(self, width, outer):
        super().__init__()
        weight = torch.randn(outer, width) * width**-0.5
        scale = weight.abs().amax(1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.float16))

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


def get_inputs():
    return [torch.randn(sequences, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, outer]
