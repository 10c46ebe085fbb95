# ruff: noqa
"""Sums over parts of a row whose exponentials are not masked.

task: row_logistic
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
def logistic_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + index < cols
        x = tl.load(x_ptr + row * cols + start + index, mask=inside, other=0.0)
        total += 1.0 / (1.0 + tl.exp(-x))
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        logistic_kernel[(rows,)](x, out, cols, BLOCK=64)
        return out
