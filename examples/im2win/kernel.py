"""Convolution in window order after Im2win: the input is laid out so that every window is one contiguous run.

    windows[n, row of the output, x, y of the kernel, channel] = input[n, channel, row * stride + y, x]

The window of an output is then `kernel * kernel * channels` numbers in a row, and that of its right neighbour begins
`stride * kernel * channels` further on: the convolution is a matrix product whose left operand's rows overlap in memory.
The layout takes width / (output width * kernel width) of what im2col takes, a third of it for 3 x 3 at stride 1.

Written by hand on the form of mtmc's product kernels; `benchmarks/im2win.py` measures it.
"""

import torch
import triton
import triton.language as tl
from torch import nn

TF32 = "tf32"  # "tf32x3", three products, where the library multiplies exactly although it may not


@triton.jit
def windows_kernel(
    x_ptr, windows_ptr, channels, height, across, out_rows, kernel, stride,
    BLOCK_X: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One row of the output's windows: BLOCK_X columns of the input, all rows that the window has, BLOCK_C channels."""
    row = tl.program_id(0).to(tl.int64)
    n, out_row = row // out_rows, row % out_rows
    x = tl.program_id(1) * BLOCK_X + tl.arange(0, BLOCK_X)[:, None]
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    mask = (x < across) & (c < channels)
    for y in range(0, kernel):
        place = ((n * channels + c) * height + out_row * stride + y) * across + x
        value = tl.load(x_ptr + place, mask=mask, other=0.0)
        tl.store(windows_ptr + ((row * across + x) * kernel + y) * channels + c, value, mask=mask)


@triton.jit
def product_kernel(
    windows_ptr, weight_ptr, out_ptr, pixels, plane, out_across, filters, run, row_step, step,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BLOCK_N filters at BLOCK_M outputs. row_step, step: elements from one row's, one output's window to the next."""
    program = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(pixels, BLOCK_M), tl.cdiv(filters, BLOCK_N)
    # GROUP_M blocks of outputs share the same filters while those are in the cache
    group = program // (GROUP_M * blocks_n)
    size = tl.minimum(blocks_m - group * GROUP_M, GROUP_M)
    inside = program % (GROUP_M * blocks_n)
    rows = ((group * GROUP_M + inside % size) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = inside // size * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask, col_mask = (rows < pixels)[:, None], (cols < filters)[None, :]
    begin = (rows // out_across * row_step + rows % out_across * step)[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, run, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a = tl.load(windows_ptr + begin + ks[None, :], mask=row_mask & (ks < run)[None, :], other=0.0)
        b = tl.load(weight_ptr + cols[None, :] * run + ks[:, None], mask=(ks < run)[:, None] & col_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    place = (rows // plane * filters)[:, None] + cols[None, :]
    tl.store(out_ptr + place * plane + (rows % plane)[:, None], total, mask=row_mask & col_mask)


def convolve(x, weight, stride):
    """The convolution of a batch by filters [filters, channels, kernel, kernel], without padding."""
    n, channels, height, across = x.shape
    filters, _, kernel, _ = weight.shape
    out_rows, out_across = (height - kernel) // stride + 1, (across - kernel) // stride + 1
    x = x.contiguous()
    windows = torch.empty((n, out_rows, across, kernel, channels), device=x.device, dtype=x.dtype)
    block_c = min(64, triton.next_power_of_2(channels))
    block_x = 2048 // block_c if across > 32 else 32
    grid = (n * out_rows, triton.cdiv(across, block_x), triton.cdiv(channels, block_c))
    windows_kernel[grid](
        x, windows, channels, height, across, out_rows, kernel, stride, BLOCK_X=block_x, BLOCK_C=block_c, num_warps=4
    )
    order = weight.permute(0, 3, 2, 1).contiguous()  # filter, x, y, channel: as the tensor cores read fp32 numbers
    out = torch.empty((n, filters, out_rows, out_across), device=x.device, dtype=x.dtype)
    pixels, run = n * out_rows * out_across, kernel * kernel * channels
    block_n = 128 if filters > 64 else max(16, triton.next_power_of_2(filters))
    product_kernel[(triton.cdiv(pixels, 128) * triton.cdiv(filters, block_n),)](
        windows, order, out, pixels, out_rows * out_across, out_across, filters, run,
        across * kernel * channels, stride * kernel * channels,
        BLOCK_M=128, BLOCK_N=block_n, BLOCK_K=32, GROUP_M=8, PRECISION=precision(x),
        num_warps=8 if block_n > 64 else 4, num_stages=4,
    )  # fmt: skip
    return out


def precision(x):
    """fp32 numbers are multiplied in TF32 where the library may: on a GPU, unless it is told not to."""
    return TF32 if x.is_cuda and torch.backends.cudnn.allow_tf32 else "ieee"


class ModelNew(nn.Module):
    def __init__(self, channels, filters, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride, bias=False)
        self.stride = stride

    def forward(self, x):
        return convolve(x, self.conv.weight, self.stride)
