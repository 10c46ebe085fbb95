# ruff: noqa
"""A reduction over the wrong axis of its tile.

task: row_power
status: build_error
kind: CompilationError
says: 2 and 1024
rules: none
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def power_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 2 + tl.arange(0, 2)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * cols + index[None, :], mask=index[None, :] < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * x, axis=0) / cols)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        power_kernel[(triton.cdiv(rows, 2),)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
