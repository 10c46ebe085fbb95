# ruff: noqa
"""A function that triton.language has not.

task: tanh_rows
status: build_error
kind: CompilationError
says: tanh
rules: function
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.tanh(x), mask=mask)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        tanh_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
