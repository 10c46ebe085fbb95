# ruff: noqa
"""task: row_power"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def power_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=0.0)
        acc += x * x
    total = tl.sum(acc, axis=0)
    tl.store(out_ptr + row, total / n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
        power_kernel[(n_rows,)](x, out, n_cols, BLOCK=256)
        return out
