# ruff: noqa
"""task: row_norm"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, y_ptr, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    diff = tl.where(mask, x - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / N
    rstd = 1.0 / tl.sqrt(var + eps)
    y = diff * rstd
    tl.store(y_ptr + row * stride + cols, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()
        self.eps = 1e-5

    def forward(self, x):
        rows, N = x.shape
        y = torch.empty_like(x)
        norm_kernel[(rows,)](x, y, x.stride(0), N, self.eps, BLOCK_SIZE=triton.next_power_of_2(N), num_warps=4)
        return y
