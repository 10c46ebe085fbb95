"""Probabilities of the tokens that are at least a share as likely as the most likely one, after a penalty of
repetitions.

Source: min-p sampling (arXiv 2407.01082) at 0.05, with the penalty of CTRL (arXiv 1909.05858) at 1.2. 128 sequences
over the vocabulary of Mistral NeMo, 131072 tokens, in fp16.
"""

import torch
from torch import nn

sequences = 128
vocabulary = 131072

VARIANTS = {
    "small": {"sequences": 12, "vocabulary": 320},
    "odd1": {"sequences": 3, "vocabulary": 131},
    "odd2": {"sequences": 7, "vocabulary": 77},
}


class Model(nn.Module):
    def __init__(self, share, penalty):
        super().__init__()
        self.share, self.penalty = share, penalty

    def forward(self, logits, seen):
        logits = logits.float()
        lowered = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        probabilities = torch.softmax(torch.where(seen, lowered, logits), dim=-1)
        kept = probabilities >= self.share * probabilities.amax(-1, keepdim=True)
        probabilities = probabilities * kept
        return probabilities / probabilities.sum(-1, keepdim=True)


def get_inputs():
    logits = 3 * torch.randn(sequences, vocabulary, dtype=torch.float16)
    return [logits, torch.rand(sequences, vocabulary) < 0.02]


def get_init_inputs():
    return [0.05, 1.2]
