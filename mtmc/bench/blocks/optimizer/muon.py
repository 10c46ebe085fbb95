"""The momentum of a matrix made nearly orthogonal by five steps of a polynomial of products, in bf16.

Source: Muon (https://kellerjordan.github.io/posts/muon): coefficients 3.4445, -4.7750, 2.0315, momentum 0.95;
scaled to the root mean square 0.2 as in Moonlight (arXiv 2502.16982). A matrix of 1024 x 4096.
"""

import torch
from torch import nn

rows = 1024
columns = 4096

VARIANTS = {
    "small": {"rows": 24, "columns": 48},
    "odd1": {"rows": 13, "columns": 21},
    "odd2": {"rows": 17, "columns": 51},
}


class Model(nn.Module):
    def __init__(self, momentum, a, b, c):
        super().__init__()
        self.momentum, self.a, self.b, self.c = momentum, a, b, c

    def forward(self, gradient, velocity):
        velocity = self.momentum * velocity + gradient
        x = (gradient + self.momentum * velocity).to(torch.bfloat16)
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            square = x @ x.T
            x = self.a * x + (self.b * square + self.c * square @ square) @ x
        return 0.2 * max(x.shape) ** 0.5 * x, velocity


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return [0.95, 3.4445, -4.7750, 2.0315]
