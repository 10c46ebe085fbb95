"""Maps of two sizes to one width, the smaller enlarged between its places, side by side, fused, and classified.

Source: the head of SegFormer-B0 (arXiv 2105.15203) on its stages 1 and 2: 32 and 64 channels at 128 and 64 places,
width 256, 150 classes. A batch of 2 in fp16; BatchNorm folded into the fusing convolution.
"""

import torch
from torch import nn

batch = 2
size = 64
narrow = 32
wide = 64
width = 256
classes = 150

VARIANTS = {
    "small": {"batch": 1, "size": 4, "narrow": 8, "wide": 16, "width": 24, "classes": 10},
    "odd1": {"batch": 2, "size": 3, "narrow": 5, "wide": 7, "width": 13, "classes": 9},
    "odd2": {"batch": 1, "size": 5, "narrow": 3, "wide": 9, "width": 11, "classes": 7},
}


class Model(nn.Module):
    def __init__(self, narrow, wide, width, classes):
        super().__init__()
        self.first, self.second = nn.Linear(narrow, width), nn.Linear(wide, width)
        self.fuse = nn.Conv2d(2 * width, width, 1)
        self.classify = nn.Conv2d(width, classes, 1)
        self.to(torch.float16)

    def forward(self, large, small):
        large = self.first(large.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, large.shape[2:])
        small = self.second(small.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, small.shape[2:])
        small = nn.functional.interpolate(small, size=large.shape[2:], mode="bilinear", align_corners=False)
        return self.classify(torch.relu(self.fuse(torch.cat((small, large), dim=1))))


def get_inputs():
    large = torch.randn(batch, narrow, 2 * size, 2 * size, dtype=torch.float16)
    return [large, torch.randn(batch, wide, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [narrow, wide, width, classes]
