"""The focal loss of every anchor and class from logits, and the share of the anchors that hold an object.

Source: RetinaNet (arXiv 1708.02002, equation 5): alpha 0.25, gamma 2, 80 classes, 9 anchors at 5 levels of 400
pixels. A batch of 2 with 30231 anchors each, in fp16.
"""

import torch
from torch import nn

batch = 2
anchors = 30231
classes = 80

VARIANTS = {
    "small": {"batch": 2, "anchors": 60, "classes": 20},
    "odd1": {"batch": 1, "anchors": 33, "classes": 7},
    "odd2": {"batch": 3, "anchors": 21, "classes": 13},
}


class Model(nn.Module):
    def __init__(self, alpha, gamma):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits, labels):
        objects = labels[..., None] == torch.arange(logits.shape[-1], device=logits.device)
        truth = objects.float()
        chance = torch.sigmoid(logits.float())
        entropy = nn.functional.binary_cross_entropy_with_logits(logits.float(), truth, reduction="none")
        off = chance + truth - 2 * chance * truth
        losses = (self.alpha * truth + (1 - self.alpha) * (1 - truth)) * off**self.gamma * entropy
        return losses.sum((1, 2)) / objects.sum((1, 2)).clamp(min=1)


def get_inputs():
    labels = torch.randint(0, classes, (batch, anchors))
    labels = torch.where(torch.rand(batch, anchors) < 0.05, labels, -1)
    return [torch.randn(batch, anchors, classes, dtype=torch.float16) - 2, labels]


def get_init_inputs():
    return [0.25, 2.0]
