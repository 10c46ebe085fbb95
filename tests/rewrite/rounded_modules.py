"""Modules with a convolution of one weight, whose operands may be rounded to the numbers of TF32 before."""

from __future__ import annotations

TEMPLATE = """
import torch
from torch import nn

batch, size = 3, 24
VARIANTS = {{"small": {{"batch": 2, "size": 6}}, "odd1": {{"batch": 1, "size": 5}}}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter({weight})

    def forward(self, x):
        weight = self.weight
        {before}
        return {after}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return []
"""
ROUNDED = "rounded, weight = torch.round(x * 1024) / 1024, torch.round(weight * 1024) / 1024"
"""From 1 to 2 the numbers of TF32 are multiples of 1/1024."""


def source(
    call: str,
    sizes: str,
    rank: int = 2,
    before: str = "rounded = x",
    after: str = "",
    given: str = "",
    weight: str = "",
) -> str:
    conv = f"torch.{call}"
    return TEMPLATE.format(
        weight=weight or f"torch.rand({sizes}) + 1",
        before=before,
        after=after.format(conv=conv) if after else conv,
        given=given or f"torch.rand(batch, 16, *[size] * {rank}) + 1",
    )
