"""Attention within shifted windows: LayerNorm, a roll, windows with a bias of relative places and a mask, and all back.

Source: Swin-T (arXiv 2103.14030), stage 1: 56 x 56 places, width 96, 3 heads, windows of 7, shifted by 3.
A batch of 16 in fp16.
"""

import torch
from torch import nn

batch = 16
side = 8
window = 7
heads = 3
head_dim = 32

VARIANTS = {
    "small": {"batch": 2, "side": 2, "window": 4, "heads": 2, "head_dim": 16},
    "odd1": {"batch": 1, "side": 3, "window": 3, "heads": 3, "head_dim": 9},
    "odd2": {"batch": 3, "side": 1, "window": 5, "heads": 2, "head_dim": 7},
}


class Model(nn.Module):
    def __init__(self, side, window, heads, head_dim):
        super().__init__()
        width, size = heads * head_dim, side * window
        self.side, self.window, self.heads, self.shift = side, window, heads, window // 2
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(0.5 * torch.randn((2 * window - 1) ** 2, heads))
        rows = torch.arange(window)[:, None].expand(window, window).flatten()
        columns = torch.arange(window).repeat(window)
        down, right = rows[:, None] - rows + window - 1, columns[:, None] - columns + window - 1
        self.register_buffer("index", down * (2 * window - 1) + right)
        strip = torch.zeros(size)
        strip[size - window : size - self.shift], strip[size - self.shift :] = 1, 2
        region = self.windows((3 * strip[:, None] + strip)[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (region[:, None, :] != region[:, :, None]) * -100.0)
        self.to(torch.float16)

    def windows(self, x):
        side, window = self.side, self.window
        x = x.reshape(x.shape[0], side, window, side, window, x.shape[-1])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, x.shape[-1])

    def forward(self, x):
        batch, size, _, width = x.shape
        inside = self.windows(torch.roll(self.norm(x), (-self.shift, -self.shift), dims=(1, 2)))
        q, k, v = self.qkv(inside).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q * (width // self.heads) ** -0.5 @ k.transpose(2, 3)
        scores = scores + self.bias[self.index].permute(2, 0, 1)
        scores = scores.unflatten(0, (batch, -1)) + self.mask[None, :, None]
        inside = torch.softmax(scores, dim=-1).flatten(0, 1) @ v
        inside = self.out(inside.transpose(1, 2).flatten(2))
        back = inside.view(batch, self.side, self.side, self.window, self.window, width).permute(0, 1, 3, 2, 4, 5)
        return x + torch.roll(back.reshape(batch, size, size, width), (self.shift, self.shift), dims=(1, 2))


def get_inputs():
    return [torch.randn(batch, side * window, side * window, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [side, window, heads, head_dim]
