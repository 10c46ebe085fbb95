# ruff: noqa
"""task: rms_weighted"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x_ptr, w_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    mean_sq = tl.sum(x * x, axis=0) / N
    scale = tl.rsqrt(mean_sq + eps)
    tl.store(y_ptr + row * stride + cols, x * scale * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, cols, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.eps = eps

    def forward(self, x):
        rows, N = x.shape
        y = torch.empty_like(x)
        BLOCK = triton.next_power_of_2(N)
        rms_kernel[(rows,)](x, self.weight, y, x.stride(0), N, self.eps, BLOCK=BLOCK)
        return y
