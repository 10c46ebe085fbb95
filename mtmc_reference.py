import torch
from torch import nn

rows = 5
cols = 5
VARIANTS = {"small": {"rows": 24, "cols": 96}, "odd1": {"rows": 5, "cols": 131}}


class Model(nn.Module):
    def forward(self, x, gate):
        return x + gate[:, None] * torch.tanh(x * x)


def get_inputs():
    return [torch.randn(rows, cols), torch.zeros(rows)]


def get_init_inputs():
    return []
