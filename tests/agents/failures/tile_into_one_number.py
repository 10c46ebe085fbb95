# ruff: noqa
"""A tile stored where one number goes.

task: row_power
status: build_error
kind: CompilationError
says: block type
rules: none
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
    tl.store(out_ptr + row, x * x / cols)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        power_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
