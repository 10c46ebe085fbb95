
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.layer(x)).relu()


def get_inputs():
    return [torch.rand(16, 8)]


def get_init_inputs():
    return []
