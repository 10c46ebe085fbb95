"""Modules of the drop-in's tests, at the top level of a file, so that they can be pickled, and their versions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A linear layer, and an activation whose parts come as submodule, keyword argument, flag and buffer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.config = {"width": width}
        self.limit = 3.0
        self.fc = nn.Linear(width, width)
        self.act = nn.SiLU()
        self.register_buffer("shift", torch.linspace(-1, 1, width))

    def forward(self, x: torch.Tensor, scale: float = 2.0, add: Any = None, twice: bool = False) -> torch.Tensor:
        y = self.act(self.fc(x)).clamp(max=self.limit) * scale + self.shift
        y = y if add is None else y + add
        return y * 2 if twice else y


class Counter(nn.Module):
    """Changes a buffer and an input at each call."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(width))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        cache.mul_(2)
        return x + self.total


HEAD = '''"""A version for the tests."""

import torch
import triton
import triton.language as tl


@triton.jit
def block_kernel(x_ptr, shift_ptr, y_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = x / (1.0 + tl.exp(-x))
    y = tl.where(y > 3.0, 3.0, y)
    y = y * 2.0 + tl.load(shift_ptr + at % WIDTH, mask=at < n, other=0.0)
    tl.store(y_ptr + at, y, mask=at < n)


@triton.jit
def add_kernel(x_ptr, total_ptr, y_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x + tl.load(total_ptr + at % WIDTH, mask=at < n, other=0.0), mask=at < n)


'''

BLOCK = (
    HEAD
    + """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc_weight = torch.nn.Parameter(torch.empty(8, 8))
        self.fc_bias = torch.nn.Parameter(torch.empty(8))
        self.register_buffer("shift", torch.empty(8))

    def forward(self, x):
        x = torch.nn.functional.linear(x, self.fc_weight, self.fc_bias)
        y = torch.empty_like(x)
        block_kernel[(triton.cdiv(x.numel(), 32),)](x, self.shift, y, x.numel(), WIDTH=8, BLOCK=32)
        return y
"""
)

COUNTER = (
    HEAD
    + """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.empty(8))

    def forward(self, x, cache):
        self.total.add_(x.sum(0))
        y = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 32),)](x, self.total, y, x.numel(), WIDTH=8, BLOCK=32)
        cache.mul_(2)
        return y
"""
)

COUNTER_TASK = '''"""What a `Counter` computes."""

import torch

rows = 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x, cache):
        total_new = self.total + x.sum(0)
        y = x + total_new
        cache_new = cache * 2
        self.total.copy_(total_new)
        cache.copy_(cache_new)
        return y


def get_inputs():
    return [torch.randn(rows, 8), torch.randn(4)]


def get_init_inputs():
    return []
'''
