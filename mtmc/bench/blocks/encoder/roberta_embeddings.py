"""Token, position and type embeddings with LayerNorm; positions count the tokens that are no padding.

Source: RoBERTa base (arXiv 1907.11692): vocabulary 50265, width 768, 514 positions, padding token 1. 32 x 512 in fp16.
"""

import torch
from torch import nn

batch = 32
seq = 512
vocabulary = 50265
places = 514
width = 768

VARIANTS = {
    "small": {"batch": 2, "seq": 24, "vocabulary": 64, "places": 26, "width": 96},
    "odd1": {"batch": 3, "seq": 7, "vocabulary": 51, "places": 9, "width": 33},
    "odd2": {"batch": 1, "seq": 19, "vocabulary": 37, "places": 21, "width": 77},
}


class Model(nn.Module):
    def __init__(self, vocabulary, width, places, padding):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.place = nn.Embedding(places, width, padding_idx=padding)
        self.kind = nn.Parameter(torch.randn(1, width))
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.padding = padding
        self.to(torch.float16)

    def forward(self, tokens):
        real = (tokens != self.padding).long()
        places = real.cumsum(1) * real + self.padding
        return self.norm(self.token(tokens) + self.place(places) + self.kind)


def get_inputs():
    tokens = torch.randint(2, vocabulary, (batch, seq))
    lengths = torch.randint(seq // 2, seq + 1, (batch, 1))
    return [tokens.masked_fill(torch.arange(seq) >= lengths, 1)]


def get_init_inputs():
    return [vocabulary, width, places, 1]
