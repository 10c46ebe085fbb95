# ruff: noqa
"""Masked lanes are zero before the mean is taken off, and their squares count.

task: row_norm
status: wrong_result
kind: WrongValues
says: off by more than
rules: masked_lanes
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < cols
    x = tl.load(x_ptr + row * cols + index, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / cols
    centred = x - mean
    variance = tl.sum(centred * centred, axis=0) / cols
    tl.store(out_ptr + row * cols + index, centred * tl.rsqrt(variance + eps), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm_kernel[(rows,)](x, out, cols, 1e-5, BLOCK=triton.next_power_of_2(cols))
        return out
