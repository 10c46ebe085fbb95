"""256 elements among 8 warps: one a thread, so each thread loads 4 bytes."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, size, cols, block: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = index < size
    x = tl.load(x_ptr + index, mask=inside)
    value = x + tl.load(bias_ptr + index % cols, mask=inside)
    tl.store(out_ptr + index, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        out, size = torch.empty_like(x), x.numel()
        grid = (triton.cdiv(size, 256),)
        bias_gelu_kernel[grid](x, self.bias, out, size, x.shape[-1], block=256, num_warps=8)
        return out
