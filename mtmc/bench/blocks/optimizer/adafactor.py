"""A step with a second moment kept as one average of rows and one of columns, the update clipped by its own size.

Source: Adafactor (arXiv 1804.04235, algorithm 4), a matrix of T5 base (arXiv 1910.10683): 3072 x 768; clip 1,
epsilon 1e-30, decay at step 100. Four of them; gradients in bf16.
"""

import torch
from torch import nn

matrices = 4
rows = 3072
columns = 768

VARIANTS = {
    "small": {"matrices": 2, "rows": 24, "columns": 64},
    "odd1": {"matrices": 1, "rows": 13, "columns": 33},
    "odd2": {"matrices": 3, "rows": 21, "columns": 7},
}


class Model(nn.Module):
    def __init__(self, rate, step):
        super().__init__()
        self.rate, self.kept = rate, 1 - step**-0.8

    def forward(self, weight, gradient, by_row, by_column):
        gradient = gradient.float()
        square = gradient.square() + 1e-30
        by_row = self.kept * by_row + (1 - self.kept) * square.mean(2)
        by_column = self.kept * by_column + (1 - self.kept) * square.mean(1)
        share = by_row / by_row.mean(1, keepdim=True)
        update = gradient * torch.rsqrt(share)[:, :, None] * torch.rsqrt(by_column)[:, None]
        size = update.square().mean((1, 2), keepdim=True).sqrt()
        return weight - self.rate * update / size.clamp(min=1.0), by_row, by_column


def get_inputs():
    weight, gradient = torch.randn(matrices, rows, columns), torch.randn(matrices, rows, columns)
    averages = [torch.rand(matrices, rows) + 0.1, torch.rand(matrices, columns) + 0.1]
    return [weight, gradient.to(torch.bfloat16), *averages]


def get_init_inputs():
    return [1e-2, 100]
