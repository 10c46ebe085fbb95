"""Descriptors: the tensor memory accelerator copies whole tiles; rows that begin elsewhere take the path with pointers."""

import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, a_tiles, b_tiles, out_ptr, m, n, k,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, described: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * block_m + tl.arange(0, block_m))[:, None]
    col = (tl.program_id(1) * block_n + tl.arange(0, block_n))[None, :]
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        if described:  # what lies outside of a matrix is 0
            a = a_tiles.load([tl.program_id(0) * block_m, start])
            b = b_tiles.load([start, tl.program_id(1) * block_n])
        else:
            inner = start + tl.arange(0, block_k)
            a = tl.load(a_ptr + row * k + inner[None, :], mask=(row < m) & (inner[None, :] < k), other=0.0)
            b = tl.load(b_ptr + inner[:, None] * n + col, mask=(inner[:, None] < k) & (col < n), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + row * n + col, total, mask=(row < m) & (col < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        a, b, out = a.contiguous(), b.contiguous(), a.new_empty(m, n)
        described = k % 8 == 0 and n % 8 == 0 and a.data_ptr() % 16 == 0 and b.data_ptr() % 16 == 0
        a_tiles = TensorDescriptor.from_tensor(a, [128, 64]) if described else a
        b_tiles = TensorDescriptor.from_tensor(b, [64, 128]) if described else b
        grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
        matmul_kernel[grid](a, b, a_tiles, b_tiles, out, m, n, k, 128, 128, 64, described, num_warps=8, num_stages=3)
        return out
