"""The score of each document: for every token of the query its most similar token there, added up.

Source: ColBERT (arXiv 2004.12832): 32 query tokens of 128 dimensions, documents of 180 tokens. 1024 documents in fp16.
"""

import torch
from torch import nn

documents = 1024
tokens = 180
query = 32
dim = 128

VARIANTS = {
    "small": {"documents": 6, "tokens": 24, "query": 8, "dim": 32},
    "odd1": {"documents": 3, "tokens": 13, "query": 5, "dim": 21},
    "odd2": {"documents": 7, "tokens": 9, "query": 3, "dim": 33},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, query, documents, mask):
        similar = torch.einsum("qd,ntd->nqt", query, documents)
        return similar.masked_fill(~mask[:, None, :], -1e4).amax(-1).sum(-1)


def get_inputs():
    lengths = torch.randint(tokens // 2, tokens + 1, (documents, 1))
    rows = [torch.randn(query, dim), torch.randn(documents, tokens, dim)]
    rows = [nn.functional.normalize(each, dim=-1).to(torch.float16) for each in rows]
    return [*rows, torch.arange(tokens) < lengths]


def get_init_inputs():
    return []
