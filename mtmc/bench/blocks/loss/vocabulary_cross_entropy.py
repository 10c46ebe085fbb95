"""The head over the vocabulary and the mean cross entropy of the tokens that count, logits in float32.

Source: GPT-2 small (Radford et al. 2019, https://github.com/openai/gpt-2): width 768, vocabulary 50257.
2048 tokens in bf16.
"""

import torch
from torch import nn

tokens = 2048
width = 768
vocabulary = 50257

VARIANTS = {
    "small": {"tokens": 24, "width": 48, "vocabulary": 130},
    "odd1": {"tokens": 7, "width": 33, "vocabulary": 77},
    "odd2": {"tokens": 13, "width": 21, "vocabulary": 51},
}


class Model(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x, targets):
        return nn.functional.cross_entropy(self.head(x).float(), targets, ignore_index=-100)


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, x, targets):
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

        return LigerFusedLinearCrossEntropyFunction.apply(x, self.head.weight, targets)[0]


def get_inputs():
    targets = torch.randint(0, vocabulary, (tokens,))
    targets[::8] = -100
    return [torch.randn(tokens, width, dtype=torch.bfloat16), targets]


def get_init_inputs():
    return [width, vocabulary]
