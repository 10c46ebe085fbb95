"""A step of AdamW over one flat tensor: float32 weights and moments, a gradient in bf16, the weights rounded to bf16
too.

Source: AdamW (arXiv 1711.05101) with the numbers of Llama 2 (arXiv 2307.09288): betas 0.9 and 0.95, epsilon 1e-5,
decay 0.1, rate 3e-4, step 1000. 16 million weights.
"""

import torch
from torch import nn

weights = 16777216

VARIANTS = {"small": {"weights": 3000}, "odd1": {"weights": 257}, "odd2": {"weights": 1021}}


class Model(nn.Module):
    def __init__(self, rate, beta1, beta2, eps, decay, step):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.eps, self.decay = rate, beta1, beta2, eps, decay
        self.first, self.second = 1 - beta1**step, 1 - beta2**step

    def forward(self, weight, gradient, mean, square):
        gradient = gradient.float()
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient * gradient
        weight = weight * (1 - self.rate * self.decay)
        weight = weight - self.rate * (mean / self.first) / ((square / self.second).sqrt() + self.eps)
        return weight, weight.to(torch.bfloat16), mean, square


def get_inputs():
    weight, gradient, mean = torch.randn(weights), torch.randn(weights), torch.randn(weights)
    return [weight, gradient.to(torch.bfloat16), mean, torch.rand(weights) + 0.01]


def get_init_inputs():
    return [3e-4, 0.9, 0.95, 1e-5, 0.1, 1000]
