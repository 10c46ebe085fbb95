"""Add and RMS norm as two kernels: the sum goes to memory and comes back."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, residual_ptr, y_ptr, size, block: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = index < size
    x = tl.load(x_ptr + index, mask=inside)
    residual = tl.load(residual_ptr + index, mask=inside)
    tl.store(y_ptr + index, x + residual, mask=inside)


@triton.jit
def rms_norm_kernel(y_ptr, weight_ptr, out_ptr, cols, eps, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, block)
    inside = col < cols
    y = tl.load(y_ptr + row * cols + col, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(y * y, axis=0) / cols + eps)
    tl.store(out_ptr + row * cols + col, y * scale * weight, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y, out, cols = torch.empty_like(x), torch.empty_like(x), x.shape[-1]
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, residual, y, x.numel(), block=1024)
        block = triton.next_power_of_2(cols)
        rms_norm_kernel[(x.numel() // cols,)](y, self.weight, out, cols, self.eps, block=block, num_warps=8)
        return out
