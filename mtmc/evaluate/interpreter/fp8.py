"""fp8 in Triton's interpreter: casts as a GPU makes them, and products of fp8 operands.

As it comes, the interpreter rounds halves up and loses the carry into the exponent (1.97 becomes 1.0), and wraps around what
is too large. A GPU rounds to nearest, ties to even, and takes what is too large for the largest number (cvt.rn.satfinite).
Of the types that PyTorch shares with it: e4m3fn (`tl.float8e4nv`) and e5m2 (`tl.float8e5`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_Array = np.ndarray[Any, Any]

_FORMATS = {"fp8e4nv": (3, 7), "fp8e5": (2, 15)}
"""Name in Triton -> bits of the mantissa, bias of the exponent."""
_SIGN, _MAGNITUDE = 0x80, 0x7F
_NAN = 0x7F


def is_fp8(dtype: Any) -> bool:
    """Whether a scalar type of Triton's is one of these."""
    return dtype.name in _FORMATS


def decode(bits: _Array, name: str) -> _Array:
    """float32 values of bit patterns (uint8). name: of the type in Triton."""
    return _values(name)[bits]


def encode(values: _Array, name: str, nearest: bool = True) -> _Array:
    """Bit patterns (uint8) of float values; what is too large becomes the largest. nearest: ties to even; else towards
    zero."""
    values = np.asarray(values)
    size = np.abs(values.astype(np.float64))
    finite, middles = _positive(name)
    if nearest:
        low, high = (np.searchsorted(middles, size, side) for side in ("left", "right"))
        found = np.where(low % 2 == 0, low, high)
    else:
        found = np.searchsorted(finite, size, "right") - 1
    found = np.where(np.isnan(size), _NAN, np.clip(found, 0, len(finite) - 1))
    return (found | np.where(np.signbit(values), _SIGN, 0)).astype(np.uint8).reshape(np.shape(values))


@functools.cache
def _values(name: str) -> _Array:
    """The numbers of all 256 bit patterns."""
    mantissa_bits, bias = _FORMATS[name]
    bits = np.arange(256)
    magnitude = bits & _MAGNITUDE
    exponent, mantissa = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if name == "fp8e5":
        values = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), values)
    else:
        values = np.where(magnitude == _NAN, np.nan, values)
    return np.where(bits & _SIGN, -values, values).astype(np.float32)


@functools.cache
def _positive(name: str) -> tuple[_Array, _Array]:
    """The finite numbers from zero up, and what lies midway between each and the next."""
    values = _values(name)[:_SIGN].astype(np.float64)
    finite = values[np.isfinite(values)]
    return finite, (finite[1:] + finite[:-1]) / 2


def correct_fp8(interpreter: Any) -> None:
    """Correct the casts of the interpreter's builder, those of bfloat16 being right."""
    builder, handle_type = interpreter.InterpreterBuilder, interpreter.TensorHandle
    import triton.language as tl

    original_cast, original_fp_to_fp = builder.cast_impl, builder.create_fp_to_fp

    def cast(self: Any, src: Any, dst_type: Any, nearest: bool) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return src
        if is_fp8(source):
            src = handle_type(decode(src.data, source.name), tl.float32)
        if not is_fp8(target):
            return original_cast(self, src, dst_type)
        values = src if src.dtype.scalar in (tl.float32, tl.float64) else original_cast(self, src, tl.float32)
        return handle_type(encode(values.data, target.name, nearest), target)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if is_fp8(src.dtype.scalar) or is_fp8(dst_type.scalar):
            return cast(self, src, dst_type, nearest=True)
        return original_cast(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if is_fp8(src.dtype.scalar) or is_fp8(dst_type.scalar):
            return cast(self, src, dst_type, rounds_to_nearest(rounding_mode))
        return original_fp_to_fp(self, src, dst_type, rounding_mode)

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


def rounds_to_nearest(rounding_mode: Any) -> bool:
    """Whether a cast's rounding mode is to nearest, ties to even, which it is where none is said."""
    return rounding_mode is None or str(getattr(rounding_mode, "name", rounding_mode)).upper().endswith("RTNE")
