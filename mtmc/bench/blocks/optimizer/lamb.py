"""A step of LAMB: Adam's direction, and a trust ratio of the norms of each layer's weights and update.

Source: LAMB (arXiv 1904.00962, algorithm 2) for BERT large: width 1024; betas 0.9 and 0.999, epsilon 1e-6, decay
0.01, no bias correction. 16 layers' matrices at once; gradients in fp16.
"""

import torch
from torch import nn

layers = 16
width = 1024

VARIANTS = {
    "small": {"layers": 3, "width": 32},
    "odd1": {"layers": 2, "width": 13},
    "odd2": {"layers": 5, "width": 21},
}


class Model(nn.Module):
    def __init__(self, rate, beta1, beta2, eps, decay):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.eps, self.decay = rate, beta1, beta2, eps, decay

    def forward(self, weight, gradient, mean, square):
        gradient = gradient.float()
        mean = torch.lerp(gradient, mean, self.beta1)
        square = square * self.beta2 + gradient.pow(2) * (1 - self.beta2)
        update = mean / (square.sqrt() + self.eps) + self.decay * weight
        trust = torch.linalg.vector_norm(weight, dim=1) / torch.linalg.vector_norm(update, dim=1)
        return weight - self.rate * trust.clamp(max=10.0)[:, None] * update, mean, square


def get_inputs():
    weight, mean = torch.randn(layers, width * width), torch.randn(layers, width * width)
    gradient = torch.randn(layers, width * width, dtype=torch.float16)
    return [weight, gradient, mean, torch.rand(layers, width * width) + 0.01]


def get_init_inputs():
    return [1e-3, 0.9, 0.999, 1e-6, 0.01]
