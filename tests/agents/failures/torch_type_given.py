# ruff: noqa
"""A type of torch given to a kernel.

task: silu_half
status: build_error
kind: CompilationError
says: torch.dtype
rules: torch_in_kernel
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * tl.sigmoid(x.to(WIDE)), mask=mask)  # <- here


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        silu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024, WIDE=torch.float32)
        return out
