# ruff: noqa
"""Masked lanes are zero, and their exponentials count.

task: softmax_rows
status: wrong_result
kind: WrongValues
says: the worst is at
rules: masked_lanes
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
    x = tl.load(x_ptr + row * cols + index, mask=inside, other=0.0)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + index, x / tl.sum(x, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
