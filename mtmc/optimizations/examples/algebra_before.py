"""All features of each row are computed, written, read again and summed."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.linear = nn.Linear(inputs, features)

    def forward(self, x):
        return torch.sum(self.linear(x), dim=1, keepdim=True) * 0.5
