# ruff: noqa
"""A function imported from where it is not.

task: tanh_rows
status: build_error
kind: ImportError
says: tanh
rules: import_from
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.math import tanh  # <- here


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tanh(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        tanh_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
