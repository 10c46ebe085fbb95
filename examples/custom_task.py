"""A task of your own, in KernelBench's format; search it with `mtmc search task=examples/custom_task.py`.

The integers at module level are the full shapes. VARIANTS declares the small shapes, which the interpreter finishes in a
second or two, and odd ones that no version is tuned for. Without VARIANTS mtmc derives both by shrinking the integers.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 8192
features = 4096
VARIANTS = {
    "small": {"tokens": 24, "features": 64},
    "odd1": {"tokens": 7, "features": 33},
    "odd2": {"tokens": 13, "features": 130},
}


class Model(nn.Module):
    """Gated activation with a residual, then a norm: four kernels in eager mode, one when fused."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return self.norm(x + F.silu(gate) * x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(tokens, features), torch.randn(tokens, features)]


def get_init_inputs() -> list[int]:
    return [features]
