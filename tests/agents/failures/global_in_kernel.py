# ruff: noqa
"""A kernel that reads a number of the module.

task: row_norm
status: build_error
kind: CompilationError
says: global variable EPS
rules: global_constant
"""

import torch
import triton
import triton.language as tl
from torch import nn


EPS = 1e-5


@triton.jit
def norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < cols
    x = tl.load(x_ptr + row * cols + index, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / cols
    tl.store(out_ptr + row * cols + index, centred * tl.rsqrt(variance + EPS), mask=mask)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
