# ruff: noqa
"""A function that takes float32 only, of float16.

task: silu_half
status: build_error
kind: CompilationError
says: fp32
rules: float_argument
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * 1.0 / (1.0 + tl.exp(-x)), mask=mask)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        silu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
