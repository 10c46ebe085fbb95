"""Sinusoids of time steps in float32 and an MLP with SiLU: the condition of every block.

Source: DDPM (arXiv 2006.11239) with the sizes of SDXL (arXiv 2307.01952): 320 sinusoids, width 1280. 2048 steps (a
rollout of all steps of many samples at once) in bf16.
"""

import math

import torch
from torch import nn

steps = 2048
half = 160
width = 1280

VARIANTS = {
    "small": {"steps": 24, "half": 16, "width": 64},
    "odd1": {"steps": 7, "half": 9, "width": 33},
    "odd2": {"steps": 13, "half": 5, "width": 51},
}


class Model(nn.Module):
    def __init__(self, half, width):
        super().__init__()
        self.half = half
        self.first, self.second = nn.Linear(2 * half, width), nn.Linear(width, width)
        self.to(torch.bfloat16)

    def forward(self, steps):
        rates = torch.exp(torch.arange(self.half, device=steps.device) * (-math.log(10000.0) / self.half))
        angles = steps[:, None].float() * rates[None]
        waves = torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1).to(torch.bfloat16)
        return self.second(nn.functional.silu(self.first(waves)))


def get_inputs():
    return [torch.randint(0, 1000, (steps,))]


def get_init_inputs():
    return [half, width]
