"""Log probabilities for sampling, each row at a temperature of its own, and that of one chosen token.

Source: sampling over the vocabulary of Llama 3 (arXiv 2407.21783), 128256 tokens. 256 sequences, logits in bf16.
"""

import torch
from torch import nn

sequences = 256
vocabulary = 128256

VARIANTS = {
    "small": {"sequences": 12, "vocabulary": 320},
    "odd1": {"sequences": 3, "vocabulary": 131},
    "odd2": {"sequences": 7, "vocabulary": 77},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logits, temperatures, tokens):
        scaled = logits.float() / temperatures[:, None]
        logs = torch.log_softmax(scaled, dim=-1)
        return logs.to(logits.dtype), logs.gather(1, tokens[:, None]).squeeze(1)


def get_inputs():
    logits = 2 * torch.randn(sequences, vocabulary, dtype=torch.bfloat16)
    return [logits, torch.rand(sequences) + 0.5, torch.randint(0, vocabulary, (sequences,))]


def get_init_inputs():
    return []
