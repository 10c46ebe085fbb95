"""A kernel to compile once in each warm process, so that no job pays for the compiler's own start. Workers only."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _scaled_product(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.arange(0, BLOCK)
    offsets = index[:, None] * n + index[None, :]
    inside = (index[:, None] < n) & (index[None, :] < n)
    a = tl.load(a_ptr + offsets, mask=inside, other=0.0)
    b = tl.load(b_ptr + offsets, mask=inside, other=0.0)
    product = tl.exp(tl.dot(a, b) - tl.max(a, axis=1)[:, None])
    tl.store(c_ptr + offsets, product, mask=inside)


def compile_small_kernel() -> None:
    """Compile for the active driver's target. Raises: whatever the compiler raises (a broken installation)."""
    pointer = torch.float32
    _scaled_product.warmup(pointer, pointer, pointer, 32, BLOCK=32, grid=(1,))


def interpret_small_kernel() -> None:
    """Run once under the interpreter, for the same reason."""
    a = torch.ones(32, 32)
    _scaled_product[(1,)](a, a, torch.empty(32, 32), 32, BLOCK=32)
