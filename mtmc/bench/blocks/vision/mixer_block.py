"""Two MLPs in turn, one over the patches of each channel and one over the channels of each patch.

Source: MLP-Mixer B/16 (arXiv 2105.01601): 196 patches, width 768, hidden 384 and 3072. A batch of 32 in bf16.
"""

import torch
from torch import nn

batch = 32
patches = 196
width = 768
across = 384
hidden = 3072

VARIANTS = {
    "small": {"batch": 2, "patches": 16, "width": 32, "across": 24, "hidden": 64},
    "odd1": {"batch": 3, "patches": 7, "width": 21, "across": 13, "hidden": 51},
    "odd2": {"batch": 1, "patches": 11, "width": 33, "across": 9, "hidden": 35},
}


class Model(nn.Module):
    def __init__(self, patches, width, across, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(patches, across), nn.GELU(), nn.Linear(across, patches))
        self.channels = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.to(torch.bfloat16)

    def forward(self, x):
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


def get_inputs():
    return [torch.randn(batch, patches, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [patches, width, across, hidden]
