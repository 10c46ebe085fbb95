# ruff: noqa
"""task: tanh_rows"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def tanh_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    x = tl.load(in_ptr + i, mask=ok)
    t = libdevice.tanh(x)
    tl.store(out_ptr + i, t, mask=ok)


def tanh_triton(x):
    out = torch.empty_like(x)
    n = x.numel()
    tanh_kernel[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return tanh_triton(x)
