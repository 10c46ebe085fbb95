# ruff: noqa
"""task: log_sum"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    terms = tl.where(mask, 1.0 + x * x, 0.0)
    total = tl.sum(terms, axis=0)
    tl.store(out_ptr + row, tl.log(total))


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        out = torch.empty(n_rows, device=x.device, dtype=x.dtype)
        log_sum_kernel[(n_rows,)](x, out, n_cols, BLOCK=triton.next_power_of_2(n_cols))
        return out
