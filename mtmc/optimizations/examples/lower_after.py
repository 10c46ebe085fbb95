"""logsumexp as one kernel: each row is read once."""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, block)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("-inf"))
    top = tl.max(x, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)  # a row of -inf must not become NaN
    tl.store(out_ptr + row, shift + tl.log(tl.sum(tl.exp(x - shift), axis=0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, cols = x.new_empty(x.shape[:-1]), x.shape[-1]
        block = triton.next_power_of_2(cols)
        logsumexp_kernel[(out.numel(),)](x, out, cols, block=block, num_warps=8)
        return out
