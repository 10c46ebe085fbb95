# ruff: noqa
"""As many lanes as there are columns, which is no power of two.

task: softmax_rows
status: build_error
kind: CompilationError
says: power of 2
rules: arange
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)  # <- here
    x = tl.load(x_ptr + row * cols + index)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + index, x / tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=cols)
        return out
