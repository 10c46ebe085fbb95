"""A small task and an honest Triton version of it, from which the tests make dishonest ones by changing one line."""

from __future__ import annotations

from mtmc.task import Task, Variant

REFERENCE = """
import torch
import torch.nn as nn

rows = 256
cols = 4096


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.softmax(x * self.weight, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""

HONEST = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_softmax(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    inside = index < cols
    x = tl.load(x_ptr + row * cols + index, mask=inside, other=0.0)
    w = tl.load(w_ptr + index, mask=inside, other=0.0)
    value = tl.where(inside, x * w, float("-inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    value = value / tl.sum(value, axis=0)
    tl.store(out_ptr + row * cols + index, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)
        return out
"""

TASK = Task(
    name="scaled_softmax",
    source=REFERENCE,
    full=Variant("full"),
    small=Variant("small", (("rows", 8), ("cols", 96))),
    held_out=(Variant("odd1", (("rows", 3), ("cols", 77))), Variant("odd2", (("rows", 5), ("cols", 130)))),
)


def changed(old: str, new: str, source: str = HONEST) -> str:
    """`source` with one occurrence of `old` replaced; fails if there is not exactly one."""
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
    return source.replace(old, new)


def line_of(text: str, source: str) -> int:
    """1-based number of the only line of `source` that contains `text`."""
    lines = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    assert len(lines) == 1, lines
    return lines[0]


PRODUCT = """
import torch
from torch import nn

rows = 4
VARIANTS = {"small": {"rows": 3}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        return x @ self.weight  # a call of the library: nothing has to be compiled from C++


def get_inputs():
    return [torch.randn(rows, 8)]


def get_init_inputs():
    return []
"""
"""A smaller task, for tests of what surrounds an evaluation."""
