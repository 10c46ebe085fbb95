"""Products of every pair of a sample's embeddings, those below the diagonal, behind the dense features.

Source: DLRM as in MLPerf (arXiv 1906.00091): 26 embeddings and one dense vector of 128. A batch of 8192 in fp16.
"""

import torch
from torch import nn

batch = 8192
features = 27
dim = 128

VARIANTS = {
    "small": {"batch": 12, "features": 8, "dim": 32},
    "odd1": {"batch": 5, "features": 7, "dim": 21},
    "odd2": {"batch": 7, "features": 11, "dim": 13},
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        rows, columns = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense, embeddings):
        stacked = torch.cat((dense[:, None], embeddings), dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return torch.cat((dense, products[:, self.rows, self.columns]), dim=1)


def get_inputs():
    dense = torch.randn(batch, dim, dtype=torch.float16)
    return [dense, torch.randn(batch, features - 1, dim, dtype=torch.float16)]


def get_init_inputs():
    return [features]
