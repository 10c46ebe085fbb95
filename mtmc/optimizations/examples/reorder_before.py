"""Softmax in three loops over each row: for the maximum, for the sum, for the result."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, block: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, block)
    tops = tl.full((block,), float("-inf"), tl.float32)
    for c in range(0, cols, block):
        tops = tl.maximum(tops, tl.load(x_ptr + start + c + col, mask=c + col < cols, other=float("-inf")))
    top = tl.max(tops, axis=0)
    sums = tl.zeros((block,), tl.float32)
    for c in range(0, cols, block):
        sums += tl.exp(tl.load(x_ptr + start + c + col, mask=c + col < cols, other=float("-inf")) - top)
    total = tl.sum(sums, axis=0)
    for c in range(0, cols, block):
        x = tl.load(x_ptr + start + c + col, mask=c + col < cols)
        tl.store(out_ptr + start + c + col, tl.exp(x - top) / total, mask=c + col < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, cols = torch.empty_like(x), x.shape[-1]
        softmax_kernel[(x.numel() // cols,)](x, out, cols, block=1024, num_warps=4)
        return out
