"""Atoms' features filtered by distance: Gaussians of distances, an MLP with shifted softplus, a sum over neighbours.

Source: SchNet (arXiv 1706.08566, section 4): 64 features, 300 Gaussians up to 30 angstrom (here of molecules of 29
atoms, dense). A batch of 32 molecules in bf16.
"""

import math

import torch
from torch import nn

batch = 32
atoms = 29
features = 64
gaussians = 300

VARIANTS = {
    "small": {"batch": 2, "atoms": 6, "features": 16, "gaussians": 24},
    "odd1": {"batch": 1, "atoms": 7, "features": 13, "gaussians": 9},
    "odd2": {"batch": 3, "atoms": 5, "features": 9, "gaussians": 11},
}


class Model(nn.Module):
    def __init__(self, features, gaussians):
        super().__init__()
        self.inside = nn.Linear(features, features, bias=False)
        self.first, self.second = nn.Linear(gaussians, features), nn.Linear(features, features)
        self.to(torch.bfloat16)
        self.register_buffer("centers", torch.linspace(0, 30, gaussians))

    def forward(self, x, places):
        gaps = places[:, :, None] - places[:, None]
        distances = torch.sqrt(gaps.square().sum(-1) + 1e-6)
        spread = torch.exp(-10.0 * (distances[..., None] - self.centers) ** 2).to(x.dtype)
        filters = nn.functional.softplus(self.first(spread)) - math.log(2)
        filters = nn.functional.softplus(self.second(filters)) - math.log(2)
        return (self.inside(x)[:, None] * filters).sum(2)


def get_inputs():
    return [torch.randn(batch, atoms, features, dtype=torch.bfloat16), 3 * torch.randn(batch, atoms, 3)]


def get_init_inputs():
    return [features, gaussians]
