"""A step of gradient descent with weight decay in the gradient and momentum that looks ahead, in place.

Source: the training of ResNet-50 (arXiv 1512.03385): momentum 0.9, decay 1e-4, rate 0.1, with Nesterov's momentum as in
arXiv 1706.02677. Its 25 557 032 weights in fp16 with a float32 momentum.
"""

import torch
from torch import nn

weights = 25557032

VARIANTS = {"small": {"weights": 3000}, "odd1": {"weights": 257}, "odd2": {"weights": 1021}}


class Model(nn.Module):
    def __init__(self, rate, momentum, decay):
        super().__init__()
        self.rate, self.momentum, self.decay = rate, momentum, decay

    def forward(self, weight, gradient, velocity):
        gradient = gradient.float() + self.decay * weight.float()
        velocity.mul_(self.momentum).add_(gradient)
        weight.sub_(self.rate * (gradient + self.momentum * velocity))
        return weight


def get_inputs():
    weight, gradient = torch.randn(weights, dtype=torch.float16), torch.randn(weights, dtype=torch.float16)
    return [weight, gradient, torch.randn(weights)]


def get_init_inputs():
    return [0.1, 0.9, 1e-4]
