# ruff: noqa
"""A function of torch in a kernel.

task: softmax_rows
status: build_error
kind: RuntimeError
says: Unsupported function referenced
rules: torch_in_kernel
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    inside = index < cols
    x = tl.load(x_ptr + row * cols + index, mask=inside, other=-float("inf"))
    x = torch.exp(x - tl.max(x, axis=0))  # <- here
    tl.store(out_ptr + row * cols + index, x / tl.sum(x, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
