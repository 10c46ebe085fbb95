"""Each token mixed with the one before it, a squared ReLU inside, and a sigmoid that says how much passes.

Source: the channel mixing of RWKV-4 1.5B (arXiv 2305.13048): width 2048, hidden 8192. 2 x 1024 tokens in bf16.
"""

import torch
from torch import nn

batch = 2
seq = 1024
width = 2048
hidden = 8192

VARIANTS = {
    "small": {"batch": 2, "seq": 12, "width": 48, "hidden": 96},
    "odd1": {"batch": 1, "seq": 7, "width": 33, "hidden": 51},
    "odd2": {"batch": 3, "seq": 5, "width": 21, "hidden": 45},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.mix_k, self.mix_r = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width))
        self.key = nn.Linear(width, hidden, bias=False)
        self.receptance = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(hidden, width, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x):
        before = self.shift(x)
        k = torch.lerp(before, x, self.mix_k)
        r = torch.lerp(before, x, self.mix_r)
        return torch.sigmoid(self.receptance(r)) * self.value(torch.relu(self.key(k)) ** 2)


def get_inputs():
    return [torch.randn(batch, seq, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
