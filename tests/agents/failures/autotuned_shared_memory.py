# ruff: noqa
"""All configurations of a tuner take too much shared memory.

task: product_half
status: build_error
kind: OutOfResources
says: shared memory
rules: shared_memory
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 128}, num_stages=9, num_warps=16),
        triton.Config({"BM": 128, "BN": 64, "BK": 128}, num_stages=8, num_warps=16),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # <- here
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

        def grid(meta):
            return (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))

        matmul_kernel[grid](a, b, out, m, n, k)
        return out
