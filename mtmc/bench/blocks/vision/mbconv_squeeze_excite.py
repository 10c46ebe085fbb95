"""An inverted bottleneck: pointwise up, depthwise, squeeze and excitation, pointwise down; BatchNorm in inference.

Source: EfficientNet-B0 (arXiv 1905.11946), a repeated block of stage 4: 40 channels, expansion 6, kernel 5, 28 x 28
places, squeezed to 10. A batch of 64 in fp16.
"""

import torch
from torch import nn

batch = 64
channels = 40
expanded = 240
squeezed = 10
size = 28

VARIANTS = {
    "small": {"batch": 2, "channels": 8, "expanded": 16, "squeezed": 4, "size": 8},
    "odd1": {"batch": 1, "channels": 5, "expanded": 13, "squeezed": 3, "size": 7},
    "odd2": {"batch": 3, "channels": 7, "expanded": 11, "squeezed": 5, "size": 5},
}


class Model(nn.Module):
    def __init__(self, channels, expanded, squeezed):
        super().__init__()
        self.up = nn.Conv2d(channels, expanded, 1, bias=False)
        self.depthwise = nn.Conv2d(expanded, expanded, 5, padding=2, groups=expanded, bias=False)
        self.squeeze, self.excite = nn.Conv2d(expanded, squeezed, 1), nn.Conv2d(squeezed, expanded, 1)
        self.down = nn.Conv2d(expanded, channels, 1, bias=False)
        for name, width in (("a", expanded), ("b", expanded), ("c", channels)):
            self.register_parameter(f"scale_{name}", nn.Parameter(torch.rand(width) + 0.5))
            self.register_parameter(f"shift_{name}", nn.Parameter(torch.rand(width) - 0.5))
            self.register_buffer(f"mean_{name}", 0.1 * torch.randn(width))
            self.register_buffer(f"variance_{name}", torch.rand(width) + 0.5)
        self.to(torch.float16)

    def norm(self, x, name):
        mean, variance = getattr(self, f"mean_{name}"), getattr(self, f"variance_{name}")
        scale, shift = getattr(self, f"scale_{name}"), getattr(self, f"shift_{name}")
        return nn.functional.batch_norm(x, mean, variance, scale, shift, eps=1e-3)

    def forward(self, x):
        inner = nn.functional.silu(self.norm(self.up(x), "a"))
        inner = nn.functional.silu(self.norm(self.depthwise(inner), "b"))
        gate = self.excite(nn.functional.silu(self.squeeze(inner.mean((2, 3), keepdim=True))))
        return x + self.norm(self.down(inner * torch.sigmoid(gate)), "c")


def get_inputs():
    return [torch.randn(batch, channels, size, size, dtype=torch.float16)]


def get_init_inputs():
    return [channels, expanded, squeezed]
