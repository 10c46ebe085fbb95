"""The functions of `triton.language.extra.libdevice` for Triton's interpreter, which has none of them.

`tl.extra.libdevice.tanh(x)` compiles to a call of `__nv_tanhf`; the interpreter has only a hook for such symbols and
raises in it. Here the symbol is looked up in a table of numpy and torch functions and computed in double precision,
then rounded to the symbol's own type: what CUDA's libdevice does to within 1 or 2 units in the last place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_Array = np.ndarray[Any, Any]
_Function = Callable[..., _Array]


def _torch(function: Callable[..., torch.Tensor]) -> _Function:
    return lambda *arguments: function(*(torch.from_numpy(np.array(a)) for a in arguments)).numpy()


_UNARY: dict[str, _Function] = {
    "abs": np.abs,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "saturate": lambda x: np.clip(x, 0.0, 1.0),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x,
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _torch(torch.special.erf),
    "erfc": _torch(torch.special.erfc),
    "erfinv": _torch(torch.special.erfinv),
    "erfcx": _torch(torch.special.erfcx),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "lgamma": _torch(torch.special.gammaln),
    "tgamma": lambda x: (
        np.exp(_torch(torch.special.gammaln)(x)) * np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, 1.0)
    ),
    "j0": _torch(torch.special.bessel_j0),
    "j1": _torch(torch.special.bessel_j1),
    "y0": _torch(torch.special.bessel_y0),
    "y1": _torch(torch.special.bessel_y1),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "ilogb": lambda x: np.floor(np.log2(np.abs(x))),
}
_MORE: dict[str, _Function] = {
    "pow": np.power,
    "powi": np.power,
    "fmod": np.fmod,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "copysign": np.copysign,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "divide": np.divide,
    "div": np.divide,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "ldexp": lambda x, y: x * np.exp2(y),
    "scalbn": lambda x, y: x * np.exp2(y),
    "fma": lambda x, y, z: x * y + z,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w),
}
_TABLE = {**_UNARY, **_MORE}
_SYMBOL = re.compile(r"__(?:nv|ocml)_(.+)")


def function_of(symbol: str) -> _Function | None:
    """The numpy function behind a device library's symbol, e.g. "__nv_fast_expf" or "__ocml_exp_f32"; None if unknown.

    Directed rounding (`_rd`, `_ru`, `_rz`) is taken as rounding to nearest: at most one unit in the last place off.
    """
    match = _SYMBOL.fullmatch(symbol)
    if match is None:
        return None
    name = re.sub(r"_f(?:16|32|64)$|_r[nzdu]$", "", match[1])
    name = re.sub(r"^(?:d|f)(?=(?:add|sub|mul|div|rcp|sqrt|ma)_|(?:add|sub|mul|div|rcp|sqrt)$)", "", name)
    name = name.removeprefix("fast_").removeprefix("native_")
    candidates = (name, name.removesuffix("f"), name.removesuffix("d"))
    return next((_TABLE[key] for key in candidates if key in _TABLE), None)


def compute(symbol: str, arguments: list[_Array], dtype: np.dtype[Any]) -> _Array:
    """Value of a device library's function on arrays, rounded to `dtype`.

    Raises: NotImplementedError if the symbol is not in the table.
    """
    function = function_of(symbol)
    if function is None:
        raise NotImplementedError(
            f"the device function {symbol} is not known to the lab's interpreter; use a tl.math function in its place"
        )
    wide = [a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a for a in arguments]
    return np.asarray(function(*np.broadcast_arrays(*wide))).astype(dtype)
