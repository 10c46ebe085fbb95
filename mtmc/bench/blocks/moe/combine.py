"""The outputs of a token's experts, which lie sorted by expert, fetched back and added by their weights.

Source: DeepSeek-V2-Lite (arXiv 2405.04434): width 2048, 6 experts a token. 4096 tokens in bf16.
"""

import torch
from torch import nn

tokens = 4096
chosen = 6
width = 2048

VARIANTS = {
    "small": {"tokens": 16, "chosen": 4, "width": 128},
    "odd1": {"tokens": 7, "chosen": 3, "width": 33},
    "odd2": {"tokens": 11, "chosen": 5, "width": 51},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, outputs, places, weights):
        fetched = outputs.index_select(0, places.flatten()).unflatten(0, places.shape)
        return (fetched.float() * weights[..., None]).sum(1).to(outputs.dtype)


def get_inputs():
    outputs = torch.randn(tokens * chosen, width, dtype=torch.bfloat16)
    places = torch.randperm(tokens * chosen).view(tokens, chosen)
    return [outputs, places, torch.softmax(torch.randn(tokens, chosen), dim=-1)]


def get_init_inputs():
    return []
