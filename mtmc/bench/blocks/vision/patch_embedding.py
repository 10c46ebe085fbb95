"""An image to tokens: a convolution as large as its stride, a class token in front, positions added.

Source: DeiT-S/16 (arXiv 2012.12877): patches of 16, width 384, images of 224. A batch of 64 in fp16.
"""

import torch
from torch import nn

batch = 64
size = 224
patch = 16
width = 384

VARIANTS = {
    "small": {"batch": 2, "size": 24, "patch": 8, "width": 48},
    "odd1": {"batch": 1, "size": 21, "patch": 7, "width": 33},
    "odd2": {"batch": 3, "size": 15, "patch": 5, "width": 51},
}


class Model(nn.Module):
    def __init__(self, size, patch, width):
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.to(torch.float16)

    def forward(self, images):
        patches = self.project(images).flatten(2).transpose(1, 2)
        return torch.cat((self.first.expand(images.shape[0], -1, -1), patches), dim=1) + self.places


def get_inputs():
    return [torch.randn(batch, 3, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [size, patch, width]
