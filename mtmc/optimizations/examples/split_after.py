"""Several programs a row, each sums a share; a second kernel adds the shares, always in the same order."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def share_kernel(x_ptr, share_ptr, cols, share, block: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    col = tl.arange(0, block)
    first = part * share
    last = tl.minimum(first + share, cols)
    sums = tl.zeros((block,), tl.float32)
    for c in range(first, last, block):
        sums += tl.load(x_ptr + row * cols + c + col, mask=c + col < last, other=0.0)
    tl.store(share_ptr + row * tl.num_programs(1) + part, tl.sum(sums, axis=0))


@triton.jit
def total_kernel(share_ptr, out_ptr, parts, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, block)
    shares = tl.load(share_ptr + row * parts + part, mask=part < parts, other=0.0)
    tl.store(out_ptr + row, tl.sum(shares, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, cols, block = x.new_empty(x.shape[:-1]), x.shape[-1], 1024
        rows = out.numel()
        # Some 2048 programs in all, but none with less than 8 blocks to sum.
        parts = max(1, min(2048 // rows, cols // (8 * block)))
        share = triton.cdiv(triton.cdiv(cols, parts), block) * block
        shares = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        share_kernel[(rows, parts)](x, shares, cols, share, block=block, num_warps=4)
        total_kernel[(rows,)](shares, out, parts, block=triton.next_power_of_2(parts), num_warps=1)
        return out
