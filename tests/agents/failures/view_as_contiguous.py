# ruff: noqa
"""A transposed view handed to a kernel that knows no strides.

task: transposed_scale
status: wrong_result
kind: WrongValues
says: off by more than
rules: contiguous
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2.0 * x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        turned = x.t()
        out = torch.empty(turned.shape, device=x.device, dtype=x.dtype)
        n = out.numel()
        scale_kernel[(triton.cdiv(n, 1024),)](turned, out, n, BLOCK=1024)
        return out
