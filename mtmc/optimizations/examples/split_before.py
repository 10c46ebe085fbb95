"""One program a row: 64 rows leave most of the GPU idle."""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, block)
    sums = tl.zeros((block,), tl.float32)
    for c in range(0, cols, block):
        sums += tl.load(x_ptr + row * cols + c + col, mask=c + col < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(sums, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, cols = x.new_empty(x.shape[:-1]), x.shape[-1]
        row_sum_kernel[(out.numel(),)](x, out, cols, block=1024, num_warps=4)
        return out
