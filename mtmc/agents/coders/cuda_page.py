"""The playbook's page of the second language: how a version has kernels in CUDA C++, with one whole example."""

from __future__ import annotations

from typing import Literal, get_args

from mtmc.errors import ConfigError

Language = Literal["triton", "cuda"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
"""What a coder may be asked to write kernels in."""

PAGE = """\
# Kernels in CUDA C++

`from mtmc.cuda import RawKernel` (in a line of its own, nothing else of mtmc), then `kernel = RawKernel(CODE,
"name")` at the top level, with CODE a plain text of the file. A launch is `kernel(grid, block, (arguments...),
shared_mem=bytes)`: grid and block are integers or tuples of up to three, the arguments are one tuple.

## What is passed
- A tensor for each pointer; its dtype must be what the pointer points to. Call `.contiguous()` where strides are assumed.
- A number for each other parameter, as declared: a Python float for `float`, an int for `int` or `long long`; no structs.
- Parameters that are larger than 2**31 - 1 are `long long`; so are offsets `(long long)row * columns`.

## What holds
- The text is compiled by NVRTC for the GPU. It includes CUDA's own headers alone (cuda_fp16.h, cuda_bf16.h, mma.h,
  math_constants.h, cuda_pipeline.h, cuda_fp8.h, stdint.h, float.h, ...): no torch, no C++ library, no std::.
- No host code, no `<<<...>>>`, no printf, malloc, clocks. No `__device__` or `static` variable that outlives a launch:
  scratch is a tensor that forward makes, constants are `__constant__`.
- Text, name and options are constants: no f-string, no replace. Sizes known ahead are templates, RawKernel(CODE,
  "softmax<float, 256>"), or options, RawKernel(CODE, "softmax", options=("-DTHREADS=256",)).
- `extern "C"` is not needed. Warps are full: `__shfl_down_sync(0xffffffff, value, offset)`, blocks of whole warps.
- Every thread of a block reaches each `__syncthreads()`.

## When it pays
- Where Triton's tiles do not fit: warps that do different work, rows of odd lengths held by one warp each, scans, small
  sorts, exact control of shared memory, vector loads (`float4`, where the address is a multiple of 16 bytes).
- A product of matrices needs tensor cores by hand (mma.h, or mma and wgmma in assembly): Triton's tl.dot is hard to beat.

## When it harms
- Loads are not masked for you: a thread beyond the edge must not load. An address out of bounds ends the process.
- A kernel that leaves loads narrow and threads few waits for memory; count bytes under way as for Triton.
"""

EXAMPLE = '''\
import torch
from torch import nn

from mtmc.cuda import RawKernel

CODE = r"""
#include <math_constants.h>

template <int THREADS>
__global__ void __launch_bounds__(THREADS) softmax(const float* __restrict__ x, float* __restrict__ y, int columns) {
    __shared__ float largest_of[THREADS / 32], sum_of[THREADS / 32];
    const float* row = x + (long long)blockIdx.x * columns;
    float* result = y + (long long)blockIdx.x * columns;
    // One pass: the largest so far, and the sum for it.
    float largest = -CUDART_INF_F, sum = 0.f;
    for (int at = threadIdx.x; at < columns; at += THREADS) {
        float value = row[at], higher = fmaxf(largest, value);
        sum = sum * expf(largest - higher) + expf(value - higher);
        largest = higher;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_xor_sync(0xffffffff, largest, offset), more = __shfl_xor_sync(0xffffffff, sum, offset);
        float higher = fmaxf(largest, other);
        if (higher > -CUDART_INF_F) sum = sum * expf(largest - higher) + more * expf(other - higher);
        largest = higher;
    }
    if (threadIdx.x % 32 == 0) {
        largest_of[threadIdx.x / 32] = largest;
        sum_of[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    largest = largest_of[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) largest = fmaxf(largest, largest_of[warp]);
    sum = 0.f;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += sum_of[warp] * expf(largest_of[warp] - largest);
    for (int at = threadIdx.x; at < columns; at += THREADS) result[at] = expf(row[at] - largest) / sum;
}
"""
softmax = RawKernel(CODE, "softmax<256>")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        softmax(x.numel() // columns, 256, (x, y, columns))
        return y
'''
"""A softmax over the rows of a matrix in fp32."""

_TRITON = "You write GPU kernels in Triton."
_IMPORTS = "The file needs only torch and triton (and Python's own math and typing)."
_CUDA = "You write GPU kernels in CUDA C++."
_CUDA_IMPORTS = "The file needs only torch and RawKernel of mtmc.cuda (and Python's own math and typing)."


def check_language(language: str) -> None:
    """Raises: ConfigError for a language that there is not."""
    if language not in LANGUAGES:
        raise ConfigError(f"coder.language cannot be {language!r}: use {' or '.join(LANGUAGES)}")


def in_cuda(system: str) -> str:
    """What a model is told of a version, of one in CUDA C++."""
    return system.replace(_TRITON, _CUDA).replace(_IMPORTS, _CUDA_IMPORTS)


def cuda_parts() -> list[str]:
    """The page and its example, for a prompt."""
    return [PAGE.strip(), f"# Example in CUDA C++\n```python\n{EXAMPLE}```"]
