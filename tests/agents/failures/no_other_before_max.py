# ruff: noqa
"""Masked lanes have no value, and the maximum takes them.

task: row_max
status: wrong_result
kind: WrongValues
says: off by more than
rules: masked_lanes
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + index, mask=index < cols)
    tl.store(out_ptr + row, tl.max(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        max_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
