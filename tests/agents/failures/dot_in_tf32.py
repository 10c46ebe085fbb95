# ruff: noqa
"""A float32 product at the default precision, of numbers large enough to show it.

task: product
status: wrong_result
kind: WrongValues
says: norm-wise error 7
rules: precision
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        at = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * k + at[None, :], (rows[:, None] < m) & (at[None, :] < k), 0.0)
        b = tl.load(b_ptr + at[:, None] * n + cols[None, :], (at[:, None] < k) & (cols[None, :] < n), 0.0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
        block_m, block_n, block_k = 32, 32, 32
        grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
        matmul_kernel[grid](a, b, out, m, n, k, BM=block_m, BN=block_n, BK=block_k)
        return out
