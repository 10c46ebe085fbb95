"""logsumexp as the library has it: several kernels, and several passes over x."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=-1)
