# ruff: noqa
"""A tensor that is made without a device.

task: row_power
status: build_error
kind: ValueError
says: is a tensor on the cpu
rules: device
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def power_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + index, mask=index < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * x, axis=0) / cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, dtype=x.dtype)
        power_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))  # <- here
        return out
