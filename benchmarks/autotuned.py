"""Kernels by hand for two built-in tasks whose launch settings Triton's own autotuner chooses among those it is given."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HEAD = """import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
{configs}
]
"""

_SOFTMAX = """

@triton.autotune(configs=CONFIGS, key=["cols"])
@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * cols + col, mask=inside, other=-float("inf"))
    x = tl.where(row < rows, x, 0.0)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + row * cols + col, e / tl.sum(e, 1)[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
        softmax_kernel[grid](x, out, rows, cols, BLOCK=triton.next_power_of_2(cols))
        return out
"""

_LINEAR = """

@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    tall, wide = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = pid // (GROUP * wide) * GROUP
    height = min(tall - first, GROUP)
    row = (first + pid % (GROUP * wide) % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = pid % (GROUP * wide) // height * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        at = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row[:, None] * k + at[None, :], (row[:, None] < m) & (at[None, :] < k), 0.0)
        w = tl.load(w_ptr + col[None, :] * k + at[:, None], (col[None, :] < n) & (at[:, None] < k), 0.0)
        acc = tl.dot(x, w, acc, input_precision="tf32x3")
    acc += tl.load(b_ptr + col, col < n, 0.0)[None, :]
    tl.store(out_ptr + row[:, None] * n + col[None, :], acc, (row[:, None] < m) & (col[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = x.contiguous()
        m, k = x.shape
        n = self.linear.weight.shape[0]
        out = torch.empty((m, n), dtype=x.dtype, device=x.device)
        grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)
        linear_kernel[grid](x, self.linear.weight.contiguous(), self.linear.bias, out, m, n, k)
        return out
"""


@dataclass(frozen=True)
class Space:
    """What the autotuner may choose from: a kernel's text, and the values of each of its settings."""

    text: str
    settings: Mapping[str, Sequence[int]]
    warps: Sequence[int]
    stages: Sequence[int]

    def configs(self, seed: int) -> list[str]:
        """All combinations as Triton writes them, in an order drawn with `seed`."""
        names = list(self.settings)
        found = [
            f"    triton.Config({dict(zip(names, values, strict=True))}, num_warps={warps}, num_stages={stages}),"
            for *values, warps, stages in itertools.product(*self.settings.values(), self.warps, self.stages)
        ]
        random.Random(seed).shuffle(found)
        return found

    def source(self, configs: Sequence[str]) -> str:
        """The module's text with these configurations."""
        return _HEAD.format(configs="\n".join(configs)) + self.text


SPACES: Mapping[str, Space] = {
    "softmax": Space(_SOFTMAX, {"ROWS": (1, 2, 4, 8)}, warps=(1, 2, 4, 8, 16, 32), stages=(1, 2)),
    "linear": Space(
        _LINEAR,
        {"BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64, 128), "BLOCK_K": (16, 32, 64), "GROUP": (1, 8)},
        warps=(4, 8),
        stages=(2, 3, 4),
    ),
}
"""By built-in task. The matrix product is rounded like the rewriter's: three TF32 products for one of fp32."""
