"""First and second order terms of a sample's fields: embeddings looked up, the square of their sum less their squares.

Source: DeepFM (arXiv 1703.04247, equation 2) on Criteo: 39 fields, 10 dimensions, a million values. A batch of
16384 in fp16.
"""

import torch
from torch import nn

batch = 16384
fields = 39
dim = 10
values = 1000000

VARIANTS = {
    "small": {"batch": 24, "fields": 8, "dim": 12, "values": 200},
    "odd1": {"batch": 7, "fields": 5, "dim": 9, "values": 77},
    "odd2": {"batch": 13, "fields": 3, "dim": 11, "values": 51},
}


class Model(nn.Module):
    def __init__(self, values, dim):
        super().__init__()
        self.table, self.first = nn.Embedding(values, dim), nn.Embedding(values, 1)
        self.bias = nn.Parameter(torch.randn(()))
        self.to(torch.float16)

    def forward(self, places):
        rows = self.table(places).float()
        second = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1)
        return torch.sigmoid(self.bias + self.first(places).float().sum((1, 2)) + second)


def get_inputs():
    return [torch.randint(0, values, (batch, fields))]


def get_init_inputs():
    return [values, dim]
