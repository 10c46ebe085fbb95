"""The scan writes a tensor of its own, and a call copies it behind the column of zeros."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cumsum_kernel(x_ptr, sums_ptr, n_cols, x_stride, sums_stride, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = 0.0
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0)
        tl.store(sums_ptr + row * sums_stride + cols, carry + tl.cumsum(x, axis=0), mask=mask)
        carry += tl.sum(x)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        sums = torch.empty((x.shape[0], x.shape[1] - 1), device=x.device, dtype=x.dtype)
        cumsum_kernel[(x.shape[0],)](x, sums, x.shape[1] - 1, x.stride(0), sums.stride(0), block=2048)
        return torch.cat((torch.zeros_like(x[:, :1]), sums), 1)
