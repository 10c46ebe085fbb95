"""Add and RMS norm as one kernel: the sum stays in registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, out_ptr, cols, eps, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, block)
    inside = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=inside, other=0.0)
    residual = tl.load(residual_ptr + row * cols + col, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0)
    y = x + residual
    scale = tl.rsqrt(tl.sum(y * y, axis=0) / cols + eps)
    tl.store(out_ptr + row * cols + col, y * scale * weight, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        out, cols = torch.empty_like(x), x.shape[-1]
        block = triton.next_power_of_2(cols)
        add_rms_norm_kernel[(x.numel() // cols,)](
            x, residual, self.weight, out, cols, self.eps, block=block, num_warps=8
        )
        return out
