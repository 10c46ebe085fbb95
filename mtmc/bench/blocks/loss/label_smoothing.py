"""Cross entropy with smoothed labels and a mask of paddings, summed and divided by the tokens.

Source: Transformer (arXiv 1706.03762): smoothing 0.1, vocabulary 37000. 4096 tokens, logits in fp16.
"""

import torch
from torch import nn

tokens = 4096
vocabulary = 37000

VARIANTS = {
    "small": {"tokens": 24, "vocabulary": 320},
    "odd1": {"tokens": 7, "vocabulary": 77},
    "odd2": {"tokens": 13, "vocabulary": 131},
}


class Model(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, targets, mask):
        logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        right = -logs.gather(-1, targets[:, None]).squeeze(-1)
        even = -logs.mean(-1)
        losses = (1 - self.smoothing) * right + self.smoothing * even
        return (losses * mask).sum() / mask.sum()


class Library(Model):
    """By Liger Kernel (`pip install liger-kernel`)."""

    def forward(self, logits, targets, mask):
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

        settings = (None, -100, 0.0, self.smoothing, "none")
        losses = LigerCrossEntropyFunction.apply(logits, targets, *settings)[0]
        return (losses.float() * mask).sum() / mask.sum()


def get_inputs():
    logits = torch.randn(tokens, vocabulary, dtype=torch.float16)
    return [logits, torch.randint(0, vocabulary, (tokens,)), (torch.rand(tokens) < 0.9).float()]


def get_init_inputs():
    return [0.1]
