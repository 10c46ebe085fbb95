"""Places in space as sines and cosines of rising frequencies, and the first layers of a field with a skip connection.

Source: NeRF (arXiv 2003.08934, equation 4 and figure 7): 10 frequencies, width 256. 65536 samples in fp16.
"""

import torch
from torch import nn

samples = 65536
frequencies = 10
width = 256

VARIANTS = {
    "small": {"samples": 48, "frequencies": 4, "width": 48},
    "odd1": {"samples": 13, "frequencies": 3, "width": 21},
    "odd2": {"samples": 21, "frequencies": 5, "width": 33},
}


class Model(nn.Module):
    def __init__(self, frequencies, width):
        super().__init__()
        features = 3 + 6 * frequencies
        self.first, self.second = nn.Linear(features, width), nn.Linear(width + features, width)
        self.density = nn.Linear(width, 1)
        self.to(torch.float16)
        self.register_buffer("scales", 2.0 ** torch.arange(frequencies))

    def forward(self, places):
        angles = places[:, None, :] * self.scales[:, None]
        waves = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
        features = torch.cat((places, waves), dim=1).to(torch.float16)
        inner = torch.relu(self.first(features))
        inner = torch.relu(self.second(torch.cat((features, inner), dim=1)))
        return nn.functional.softplus(self.density(inner)), inner


def get_inputs():
    return [2 * torch.rand(samples, 3) - 1]


def get_init_inputs():
    return [frequencies, width]
