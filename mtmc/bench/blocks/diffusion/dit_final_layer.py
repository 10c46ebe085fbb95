"""The way from tokens back to an image: a modulated norm, a projection to patches, and patches put in their places.

Source: DiT-XL/2 (arXiv 2212.09748) for images of 512: 32 x 32 patches of 2 x 2, width 1152, 8 channels.
A batch of 16 in fp16.
"""

import torch
from torch import nn

batch = 16
side = 32
patch = 2
channels = 8
width = 1152

VARIANTS = {
    "small": {"batch": 2, "side": 4, "patch": 2, "channels": 4, "width": 48},
    "odd1": {"batch": 1, "side": 3, "patch": 3, "channels": 5, "width": 33},
    "odd2": {"batch": 3, "side": 5, "patch": 1, "channels": 7, "width": 21},
}


class Model(nn.Module):
    def __init__(self, side, patch, channels, width):
        super().__init__()
        self.side, self.patch, self.channels = side, patch, channels
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.condition = nn.Linear(width, 2 * width)
        self.project = nn.Linear(width, patch * patch * channels)
        self.to(torch.float16)

    def forward(self, x, condition):
        shift, scale = self.condition(nn.functional.silu(condition)).chunk(2, dim=1)
        patches = self.project(torch.addcmul(shift[:, None], self.norm(x), 1 + scale[:, None]))
        patches = patches.view(-1, self.side, self.side, self.patch, self.patch, self.channels)
        image = torch.einsum("nhwpqc->nchpwq", patches)
        return image.reshape(-1, self.channels, self.side * self.patch, self.side * self.patch)


def get_inputs():
    x = torch.randn(batch, side * side, width, dtype=torch.float16)
    return [x, torch.randn(batch, width, dtype=torch.float16)]


def get_init_inputs():
    return [side, patch, channels, width]
