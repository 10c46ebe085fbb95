"""The sum over the features is one product with the summed weights: sum_n (x w_n + b_n) = x (sum_n w_n) + sum_n b_n."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.linear = nn.Linear(inputs, features)

    def forward(self, x):
        weights = torch.sum(self.linear.weight, dim=0)  # in each call: weights may have changed
        sums = x @ weights + torch.sum(self.linear.bias)
        return sums.unsqueeze(1) * 0.5
