"""A gated average over all tokens at once, computed with logarithms: cumulative sums and cumulative logsumexp.

Source: minGRU (arXiv 2410.01201, appendix B.2.1): h = (1 - z) h + z g(c), g(c) = c + 0.5 or sigmoid(c). 8 x 2048
tokens of width 512 in bf16, the scan in float32.
"""

import torch
from torch import nn

batch = 8
seq = 2048
width = 512

VARIANTS = {
    "small": {"batch": 2, "seq": 20, "width": 24},
    "odd1": {"batch": 1, "seq": 13, "width": 33},
    "odd2": {"batch": 3, "seq": 9, "width": 21},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 2 * width, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x):
        gate, content = self.project(x).float().chunk(2, dim=-1)
        kept = -nn.functional.softplus(gate).cumsum(1)
        positive = (nn.functional.relu(content) + 0.5).log()
        value = torch.where(content >= 0, positive, -nn.functional.softplus(-content))
        entering = value - nn.functional.softplus(-gate) - kept
        return torch.exp(kept + torch.logcumsumexp(entering, dim=1)).to(x.dtype)


def get_inputs():
    return [torch.randn(batch, seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width]
