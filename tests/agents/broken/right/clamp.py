# ruff: noqa
"""task: clamp_scale"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clamp_kernel(x_ptr, out_ptr, low, high, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    x = tl.minimum(tl.maximum(x, low), high)
    x = tl.where(x > 0, x, 0.0) * 1.5
    tl.store(out_ptr + offsets, x, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low = low
        self.high = high

    def forward(self, x):
        out = torch.empty_like(x)
        n_elements = x.numel()
        grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
        clamp_kernel[grid](x, out, self.low, self.high, n_elements, BLOCK_SIZE=1024)
        return out
