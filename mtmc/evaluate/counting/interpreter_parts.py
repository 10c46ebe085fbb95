"""The parts of Triton's interpreter that counting stands on, and how they run faster and without data."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from mtmc.errors import EvaluatorError

_NEEDED = ("InterpretedFunction", "InterpreterBuilder", "GridExecutor", "TensorHandle", "ReduceOps", "ScanOps",
           "interpreter_builder", "_patch_lang", "_implicit_cvt", "_get_np_dtype")  # fmt: skip
_NEEDED_OPS = ("create_masked_load", "create_masked_store", "create_load", "create_store", "create_dot",
               "create_atomic_rmw", "create_atomic_cas", "set_grid_dim", "set_grid_idx")  # fmt: skip


def interpreter_parts() -> Any:
    """Triton's interpreter module. Raises: EvaluatorError if this Triton is built otherwise."""
    import triton
    from triton.runtime import interpreter

    missing = [name for name in _NEEDED if not hasattr(interpreter, name)]
    missing += [name for name in _NEEDED_OPS if not hasattr(getattr(interpreter, "interpreter_builder", None), name)]
    if missing:
        raise EvaluatorError(
            f"triton {triton.__version__} has no {', '.join(missing)} in its interpreter, so traffic cannot be "
            "counted; install a version from 3.6 to 3.9"
        )
    return interpreter


@contextlib.contextmanager
def patched_language(parts: Any) -> Iterator[None]:
    """Patch `triton.language` for interpretation once.

    The interpreter does it anew for every launch and every device function called, which is most of its time.
    """
    import triton.language as tl

    from mtmc.evaluate.interpreter.interpreter import index_of

    original = parts._patch_lang
    scope = original(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    index = tl.tensor.__index__
    tl.tensor.__index__ = index_of
    parts._patch_lang = lambda fn: types.SimpleNamespace(restore=lambda: None)
    try:
        yield
    finally:
        parts._patch_lang = original
        tl.tensor.__index__ = index
        scope.restore()


def first_along_axis(parts: Any) -> Callable[..., list[Any]]:
    """A reduction by any combine function, as far as shapes and types go."""

    def generic_reduce(ops: Any, values: Any) -> list[Any]:
        import numpy as np

        results = []
        for value in values:
            data = value.handle.data
            axis = 0 if ops.axis is None else ops.axis
            data = data.reshape(-1) if ops.axis is None and not ops.keep_dims else data
            if ops.axis is None and ops.keep_dims:
                first = data.reshape(-1)[:1].reshape([1] * data.ndim)
            else:
                first = np.take(data, [0], axis=axis) if ops.keep_dims else np.take(data, 0, axis=axis)
            results.append(ops.to_tensor(first, value.dtype))
        return results

    return generic_reduce


def one(dtype: Any) -> int | float:
    """1 in the interpreter's representation: types that numpy lacks are kept as bits."""
    if dtype.is_floating() and dtype.name not in ("fp16", "fp32", "fp64"):
        return int(dtype.exponent_bias) << int(dtype.fp_mantissa_width)
    return 1


def kept_by(mask: Any, shape: Any) -> Any:
    """Which elements of a block a mask keeps, which is a handle, an array or a bool, by operation and version."""
    import numpy as np

    return np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), shape)
