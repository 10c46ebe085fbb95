# ruff: noqa
"""The result is written over an input.

task: scaled_add
status: wrong_result
kind: InputMutated
says: input
rules: own_output
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2.0 * x + y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = x
        n = x.numel()
        block = 1024
        add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
        return out
