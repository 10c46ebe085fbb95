# ruff: noqa
"""task: scaled_add"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_add_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    numel,
    alpha,
    BLOCK: tl.constexpr,
):
    start = tl.program_id(0) * BLOCK
    idx = start + tl.arange(0, BLOCK)
    valid = idx < numel
    a = tl.load(a_ptr + idx, mask=valid, other=0.0)
    b = tl.load(b_ptr + idx, mask=valid, other=0.0)
    tl.store(out_ptr + idx, a * alpha + b, mask=valid)


def scaled_add(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    out = torch.empty_like(a)
    numel = a.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    scaled_add_kernel[grid](a, b, out, numel, alpha, BLOCK=BLOCK, num_warps=4)
    return out


class ModelNew(nn.Module):
    def forward(self, x, y):
        return scaled_add(x, y, 2.0)
