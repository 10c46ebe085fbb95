"""Softmax of rows that are held in registers: each element is read once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, block: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, block)
    x = tl.load(x_ptr + start + col, mask=col < cols, other=float("-inf"))
    power = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + start + col, power / tl.sum(power, axis=0), mask=col < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, cols = torch.empty_like(x), x.shape[-1]
        softmax_kernel[(x.numel() // cols,)](x, out, cols, block=triton.next_power_of_2(cols), num_warps=4)
        return out
