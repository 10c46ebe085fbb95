# ruff: noqa
"""A loop that is left with break.

task: softmax_rows
status: build_error
kind: UnsupportedLanguageConstruct
says: Break
rules: none
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    inside = index < cols
    for step in range(cols):
        break  # <- here
    x = tl.load(x_ptr + row * cols + index, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + index, x / tl.sum(x, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
