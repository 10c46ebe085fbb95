"""The scan writes into its slice of the result, with the strides of that; the column before is filled in."""

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
        result = torch.empty_like(x)
        sums = result.narrow(1, 1, x.shape[1] - 1)
        cumsum_kernel[(x.shape[0],)](x, sums, x.shape[1] - 1, x.stride(0), sums.stride(0), block=2048)
        result.narrow(1, 0, 1).fill_(0)
        return result
