# ruff: noqa
"""Offsets from a division that gives floats.

task: row_power
status: build_error
kind: CompilationError
says: invalid operands of type pointer
rules: float_offset
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def power_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 2 / 2
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + index, mask=index < cols, other=0.0)  # <- here
    tl.store(out_ptr + row, tl.sum(x * x, axis=0) / cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        power_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
