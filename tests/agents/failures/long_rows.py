# ruff: noqa
"""Sums over parts of a row whose exponentials are not masked.

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
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + index < cols
        x = tl.load(x_ptr + row * cols + start + index, mask=inside, other=0.0)
        total += tl.exp(x)
    whole = tl.sum(total, axis=0)
    for start in range(0, cols, BLOCK):
        at = start + index
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        tl.store(out_ptr + row * cols + at, tl.exp(x) / whole, mask=at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=64)
        return out
