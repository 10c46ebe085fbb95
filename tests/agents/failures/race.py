# ruff: noqa
"""Programs that add to one number without atomics.

task: row_power
status: wrong_result
kind: NaN
says: 6 of 6 elements
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
    index += tl.program_id(1) * BLOCK
    x = tl.load(x_ptr + row * cols + index, mask=index < cols, other=0.0)
    tl.store(out_ptr + row, tl.load(out_ptr + row) + tl.sum(x * x, axis=0) / cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        power_kernel[(rows, triton.cdiv(cols, 32))](x, out, cols, BLOCK=32)
        return out
