"""A step of Lion: the sign of an average, and another average that is kept, both in bf16.

Source: Lion (arXiv 2302.06675, algorithm 2): betas 0.9 and 0.99, decay 0.1, rate 1e-4. 33 million weights in bf16.
"""

import torch
from torch import nn

weights = 33554432

VARIANTS = {"small": {"weights": 3000}, "odd1": {"weights": 257}, "odd2": {"weights": 1021}}


class Model(nn.Module):
    def __init__(self, rate, beta1, beta2, decay):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.decay = rate, beta1, beta2, decay

    def forward(self, weight, gradient, mean):
        update = torch.sign(torch.lerp(gradient.float(), mean.float(), self.beta1))
        weight = weight.float() - self.rate * (update + self.decay * weight.float())
        mean = torch.lerp(gradient.float(), mean.float(), self.beta2)
        return weight.to(torch.bfloat16), mean.to(torch.bfloat16)


def get_inputs():
    return [torch.randn(weights, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [1e-4, 0.9, 0.99, 0.1]
