"""quantized: types of 8 bits (fp8, integers), which torch stores, and in which it hardly computes.

A value of such a type is one of 256, so that two of them are some steps apart, whatever their size. Imports torch.
"""

from __future__ import annotations

import torch

_SIGN, _MAGNITUDE = 0x80, 0x7F
_LARGEST = 2.0**62
"""Differences up to here are right in int64."""
_UNSIGNED = {getattr(torch, name) for name in ("float8_e8m0fnu",) if hasattr(torch, name)}
"""Types without a sign: powers of two."""


def is_fp8(dtype: torch.dtype) -> bool:
    """Whether a dtype is floating and has 8 bits."""
    return dtype.is_floating_point and dtype.itemsize == 1


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or the same numbers in float32 where it is fp8, for which torch lacks most operators."""
    return tensor.to(torch.float32) if is_fp8(tensor.dtype) else tensor


def stored(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `readable`: rounded to the nearest number of an fp8 dtype, what is too large to the largest one. A
    tensor that has the dtype is returned as it is."""
    if values.dtype == dtype or not is_fp8(dtype):
        return values
    limits = torch.finfo(dtype)
    return values.clamp(limits.min, limits.max).to(dtype)


def ordinals(tensor: torch.Tensor) -> torch.Tensor:
    """Place of each element among the numbers that its dtype has, in order: int64. Zeros of either sign are one number.

    tensor: fp8 (of NaN and infinities the place says nothing) or integers. Raises: TypeError for another dtype.
    """
    if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        return tensor.to(torch.int64)
    if not is_fp8(tensor.dtype):
        raise TypeError(f"{tensor.dtype} has no steps: give integers or fp8")
    bits = tensor.contiguous().view(torch.uint8).to(torch.int64)
    if tensor.dtype in _UNSIGNED:
        return bits
    magnitude = bits & _MAGNITUDE
    return torch.where((bits & _SIGN).bool(), -magnitude, magnitude)


def steps_apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many numbers of their dtype lie from each element of a to that of b: float64, so that no difference wraps around.

    a, b: of one shape and dtype, finite. Differences above 2^53 are rounded.
    """
    first, other = ordinals(a), ordinals(b)
    steps = (first - other).abs_().double()
    if a.dtype.itemsize < 8:
        return steps
    wide = (first.double() - other.double()).abs_()
    return torch.where(wide > _LARGEST, wide, steps)
