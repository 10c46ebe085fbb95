"""RMSNorm, and its result as int8 with a scale for each token.

Source: dynamic quantization by tokens, SmoothQuant O1 (arXiv 2211.10438, table 2), before the projections of Llama
2 13B (arXiv 2307.09288): width 5120. 4096 tokens in fp16.
"""

import torch
from torch import nn

tokens = 4096
width = 5120

VARIANTS = {
    "small": {"tokens": 24, "width": 320},
    "odd1": {"tokens": 7, "width": 33},
    "odd2": {"tokens": 13, "width": 131},
}
TOLERANCE = {"steps": 1}


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps
        self.to(torch.float16)

    def forward(self, x):
        normed = nn.functional.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps)
        scale = normed.abs().amax(-1, keepdim=True) / 127.0
        return torch.round(normed / scale).clamp(-128, 127).to(torch.int8), scale


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, 1e-5]
