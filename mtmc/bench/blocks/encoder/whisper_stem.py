"""The way from a spectrogram to frames: two convolutions in time with GELU, the second at stride 2, and sinusoids.

Source: Whisper base (arXiv 2212.04356): 80 channels, width 512, 3000 steps. A batch of 8 in fp16.
"""

import math

import torch
from torch import nn

batch = 8
channels = 80
width = 512
steps = 3000

VARIANTS = {
    "small": {"batch": 2, "channels": 16, "width": 32, "steps": 24},
    "odd1": {"batch": 1, "channels": 7, "width": 22, "steps": 13},
    "odd2": {"batch": 3, "channels": 5, "width": 18, "steps": 19},
}


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.first = nn.Conv1d(channels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.width = width
        self.to(torch.float16)

    def forward(self, sound):
        x = nn.functional.gelu(self.first(sound))
        x = nn.functional.gelu(self.second(x)).transpose(1, 2)
        rates = torch.exp(-math.log(10000) / (self.width // 2 - 1) * torch.arange(self.width // 2, device=x.device))
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * rates
        return x + torch.cat((angles.sin(), angles.cos()), dim=1).to(x.dtype)


def get_inputs():
    return [torch.randn(batch, channels, steps, dtype=torch.float16)]


def get_init_inputs():
    return [channels, width]
